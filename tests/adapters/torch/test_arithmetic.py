"""The precision of matrix products, torch's global settings, which are restored, and autocast."""

import pytest
import torch
from torch import nn

import ksdmin
import ksdmin.torch
from tests.adapters.torch.dense import assert_close, dense, from_module, make
from tests.adapters.torch.zoo import ZOO
from tests.nets import tanh_net


@pytest.mark.parametrize(
    ("precision", "tolerance", "noise"),
    [("highest", 1e-5, 1e-7), ("high", 1e-5, 1e-5), ("bfloat16", 0.05, 1e-3)],
)
@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer", "dropped"])
def test_single_precision(name, precision, tolerance, noise):
    case, right = ZOO[name](), dense(name, "whole")
    problem = ksdmin.from_torch(
        case.model.float(), case.loss, case.data, precision=precision, curvature="gauss-newton"
    )
    x = right.x.float()
    value, g, squares = problem.value_and_gradient(x, diagonal=True)
    product = problem.curvature(x)(g)
    assert g.dtype == squares.dtype == product.dtype == torch.float32
    assert problem.traits.noise == noise
    if name == "dropped":  # masks are drawn otherwise in another dtype
        return
    assert value == pytest.approx(right.value, rel=tolerance)
    assert_close(g.double(), right.gradient, tolerance)
    assert_close(squares.double(), right.squares, 2 * tolerance)
    assert_close(product.double(), right.gauss_newton @ right.gradient, 2 * tolerance)


def test_bfloat16_in_finer_arithmetic():
    """On a CPU, where there is no TF32, it is float32 at once; the problem itself is unchanged."""
    coarse, exact = (
        ksdmin.from_torch(tanh_net(3, 4, 1), nn.MSELoss(), DATA, precision=precision)
        for precision in ("bfloat16", "highest")
    )
    x, finer = exact.x0, coarse.in_finer_arithmetic()
    assert finer.value(x) == exact.value(x) != coarse.value(x)
    assert torch.equal(finer.curvature(x)(x), exact.curvature(x)(x))
    assert not torch.equal(coarse.curvature(x)(x), exact.curvature(x)(x))
    finest = finer.in_finer_arithmetic()
    assert [p.traits.noise for p in (coarse, finer, finest)] == [1e-3, 1e-5, 1e-7]
    assert finest.in_finer_arithmetic().x0.dtype == torch.float64  # see test_in_double.py


def flags():
    def read(of):
        try:
            return of()
        # How torch answers where its two ways differ, and an older one that has one way only
        except (AttributeError, RuntimeError) as error:
            return str(error)[:20]

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    return [
        torch.is_autocast_enabled("cpu"),
        torch.is_grad_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
        cudnn.enabled,
        torch.backends.cuda.flash_sdp_enabled(),
        *map(read, (torch.get_float32_matmul_precision, lambda: matmul.allow_tf32,
                    lambda: cudnn.allow_tf32, lambda: matmul.fp32_precision)),
    ]  # fmt: skip


@pytest.fixture(params=["default", "high", "medium", "newer"])
def set_by_user(request):
    """What the user may have set in torch before."""
    matmul = torch.backends.cuda.matmul
    before = torch.get_float32_matmul_precision()
    if request.param == "newer":
        if not hasattr(matmul, "fp32_precision"):
            pytest.skip("an older torch")
        matmul.fp32_precision = "tf32"
    elif request.param != "default":
        torch.set_float32_matmul_precision(request.param)
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("precision", ["highest", "high", "bfloat16"])
def test_flags_are_put_back(precision, set_by_user):
    inside, broken = [], False

    def losses(z, y):
        inside.append(torch.get_float32_matmul_precision())
        if broken:
            raise ArithmeticError
        return (z - y).square().mean(1)

    before = flags()
    problem = from_module(nn.Linear(3, 2), loss=losses, precision=precision)
    problem.value_and_gradient(problem.x0, diagonal=True)
    problem.curvature(problem.x0)(problem.x0)
    if flags() != before:  # where torch's two ways differed, they may agree now
        assert before[6] == "PyTorch is checking "
        assert flags()[8] == before[8]
    assert set(inside) == {"high" if precision == "high" else "highest"}
    before, broken = flags(), True
    with pytest.raises(ArithmeticError):
        problem.value(problem.x0)
    assert flags() == before


def test_flags_are_put_back_where_a_loss_raises_in_the_middle():
    """While the model is looked at some of it is without consequence: there are no factors."""
    calls, before = [], flags()

    def loss(z, y):
        if len(calls) > 4:
            raise OSError("in the middle")
        calls.append(z)
        return nn.functional.cross_entropy(z, y, reduction="none")

    X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    with pytest.raises(OSError, match="in the middle"):
        ksdmin.minimize(ksdmin.from_torch(model, loss, (X, (X[:, 0] > 0).long()), precision="high"))
    assert flags() == before


def plain_function():
    return ksdmin.from_torch(lambda x: x.square().sum().sin(), x0=torch.ones(3))


@pytest.mark.parametrize("made", [lambda: make("mlp"), plain_function])
def test_within_no_grad(made):
    right = made()
    with torch.no_grad():
        problem = made()
        g = problem.value_and_gradient(problem.x0, diagonal=problem.traits.has_diagonal)[1]
        product = problem.curvature(problem.x0)(g)
    assert torch.equal(g, right.value_and_gradient(right.x0)[1])
    assert torch.equal(product, right.curvature(right.x0)(g))


def test_a_point_that_requires_a_gradient():
    problem = make("mlp")
    x = problem.x0.clone().requires_grad_()
    g = problem.value_and_gradient(x)[1]
    assert not g.requires_grad
    assert torch.equal(g, problem.value_and_gradient(problem.x0)[1])


def test_attention_gives_one_value_with_and_without_gradients():
    """In eval mode torch has another kernel for inference."""
    case = ZOO["transformer"]()
    problem = ksdmin.from_torch(case.model.eval(), case.loss, case.data)
    assert problem.value(problem.x0) == problem.value_and_gradient(problem.x0)[0]


# torch.autocast, in a model and around a call: precision= is its place

X = torch.linspace(-1, 1, 60).reshape(20, 3)
DATA = X, X.square().sum(1, keepdim=True)


class Mixed(nn.Module):
    """Computes under autocast itself, with functions only or through a module."""

    def __init__(self, functional, enabled=True):
        super().__init__()
        self.layer, self.functional, self.enabled = nn.Linear(3, 1), functional, enabled

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.enabled):
            if self.functional:
                return x @ self.layer.weight.T + self.layer.bias
            return self.layer(x)


ONE_LINE = r"Mixed computes under torch.autocast in its forward pass.*precision='bfloat16'"


@pytest.mark.parametrize("functional", [True, False])
def test_in_the_forward_pass(functional):
    with pytest.raises(ValueError, match=ONE_LINE):
        ksdmin.from_torch(Mixed(functional), nn.MSELoss(), DATA)
    with pytest.raises(ValueError, match=ONE_LINE):
        ksdmin.from_torch(Mixed(functional), residuals=[(lambda m, x: m(x), X, 1.0)])


@pytest.mark.parametrize("arguments", [{"enabled": False}, {"enabled": True}])
def test_a_forward_pass_that_switches_it_off_or_is_told_of_it(arguments):
    precision = "bfloat16" if arguments["enabled"] else "highest"
    problem = ksdmin.from_torch(Mixed(False, **arguments), nn.MSELoss(), DATA, precision=precision)
    assert ksdmin.minimize(problem, options={"maxiter": 2}).fun < problem.value(problem.x0)


def test_around_from_torch_and_evaluations():
    """What a model computes is a matter of precision=."""
    expected = ksdmin.from_torch(tanh_net(3, 4, 1), nn.MSELoss(), DATA)
    with torch.autocast("cpu", torch.bfloat16):
        problem = ksdmin.from_torch(tanh_net(3, 4, 1), nn.MSELoss(), DATA)
        value = problem.value(problem.x0)
    assert value == expected.value(expected.x0)
    found, right = (ksdmin.minimize(p, rng=0, options={"maxiter": 3}) for p in (problem, expected))
    assert torch.equal(found.x, right.x)


def test_around_a_run():
    problem = ksdmin.from_torch(tanh_net(3, 4, 1), nn.MSELoss(), DATA)
    words = "torch.autocast is on.*outside of it, and pass precision='bfloat16'"
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(RuntimeError, match=words):
        ksdmin.minimize(problem)
    with torch.autocast("cuda", torch.bfloat16, enabled=False):
        ksdmin.minimize(problem, options={"maxiter": 1})


def test_the_optimizer():
    model = tanh_net(3, 4, 1)
    optimizer = ksdmin.torch.KSD(model.parameters())

    def closure():
        with torch.autocast("cpu", torch.bfloat16):
            return (model(X).float() - DATA[1]).square().mean()

    assert optimizer.step(closure) > 0
    words = "torch.autocast is on.*put autocast into the closure"
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(RuntimeError, match=words):
        optimizer.step(closure)
