"""Plain torch functions: any form of x0, exact derivatives, and tensors in ``minimize``."""

import copy
from collections import namedtuple

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import nn
from torch.func import functional_call

import ksdmin
from ksdmin import from_torch, minimize
from tests.nets import tanh_net
from tests.zoo.registry import Function

FLOAT = torch.float64
Pair = namedtuple("Pair", "a b")


def draw(*shape, dtype=FLOAT, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=FLOAT).to(dtype)


def bowl(*parts):
    """A function of tensors whose Hessian couples all of their entries."""
    total = sum((part * torch.arange(1, part.numel() + 1).view(part.shape)).sum() for part in parts)
    return total.sin() + sum((part**4).sum() + (part**2).sum() for part in parts)


def tiny_net(dtype=FLOAT):
    return tanh_net(1, 4, 1).to(dtype)


def check_derivatives(problem, reference, rtol=1e-10):
    """Value, gradient and products against dense ones of `reference`, a function of x."""
    x = problem.x0 + 0.1 * draw(*problem.x0.shape, dtype=problem.x0.dtype, seed=1)
    like = {"rtol": rtol, "atol": rtol}
    g = torch.autograd.functional.jacobian(reference, x)
    H = torch.autograd.functional.hessian(reference, x)
    value, gradient = problem.value_and_gradient(x)
    assert type(value) is float
    assert value == problem.value(x) == pytest.approx(reference(x).item(), rel=rtol)
    torch.testing.assert_close(gradient, g, **like)
    product = problem.curvature(x)
    for seed in (2, 3):
        v = draw(*x.shape, dtype=x.dtype, seed=seed)
        torch.testing.assert_close(product(v), H @ v, **like)
    V = torch.stack([g, v])
    projected = problem.value_and_projected_gradient(x, slice(None), V)
    assert projected[0] == value
    np.testing.assert_allclose(projected[1], (V @ g).numpy(), rtol=max(rtol, 1e-12))
    assert not gradient.requires_grad
    assert not product(v).requires_grad


# --- The forms of x0 ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (5,), (3, 2)], ids=str)
def test_a_tensor(shape, dtype):
    x0 = draw(*shape, dtype=dtype)
    seen = []

    def fun(theta):
        seen.append((theta.shape, theta.dtype))
        return bowl(theta)

    problem = from_torch(fun, x0=x0)
    assert problem.x0.dtype == dtype
    check_derivatives(problem, lambda x: bowl(x.view(shape)), 1e-10 if dtype == FLOAT else 1e-4)
    assert set(seen) == {(shape, dtype)}
    assert problem.unflatten(problem.x0.numpy()).shape == shape


def test_nested_containers():
    x0 = {"w": draw(2, 3), "more": [draw(2, seed=1), Pair(draw(seed=2), (draw(1, seed=3),))]}

    def fun(theta):
        assert isinstance(theta["more"], list)
        return bowl(theta["w"], theta["more"][0], theta["more"][1].a, theta["more"][1].b[0])

    problem = from_torch(fun, x0=x0)
    assert problem.x0.shape == (10,)

    def reference(x):
        return bowl(x[:6].view(2, 3), x[6:8], x[8], x[9:])

    check_derivatives(problem, reference)
    res = minimize(problem, options={"maxiter": 3}, rng=0)
    found = problem.unflatten(res.x)
    assert isinstance(found["more"][1], Pair)
    problem.load(res.x)
    assert torch.equal(x0["w"].reshape(-1), res.x[:6])
    assert torch.equal(x0["more"][1].a, res.x[8])


def test_an_iterator_of_parameters():
    net = tiny_net()

    def fun(theta):
        assert type(theta) is list
        return bowl(*theta)

    problem = from_torch(fun, x0=net.parameters())
    same = from_torch(lambda module: bowl(*module.parameters()), x0=tiny_net())
    x = problem.x0 + 0.1
    assert torch.equal(problem.value_and_gradient(x)[1], same.value_and_gradient(x)[1])
    problem.load(x)
    assert torch.equal(nn.utils.parameters_to_vector(net.parameters()), x)
    assert all(p.requires_grad and p.is_leaf for p in net.parameters())


def by_the_argument(net, inputs):
    return lambda module: (module(inputs) ** 2).mean() + bowl(module[0].weight)


def by_the_closure(net, inputs):
    return lambda module: (net(inputs) ** 2).mean() + bowl(net[0].weight)


def by_its_parameters(net, inputs):
    def fun(module):
        named = dict(module.named_parameters())
        return (functional_call(module, named, (inputs,)) ** 2).mean() + bowl(named["0.weight"])

    return fun


@pytest.mark.parametrize("way", [by_the_argument, by_the_closure, by_its_parameters])
def test_a_module(way):
    net, inputs = tiny_net(), draw(7, 1)
    other = copy.deepcopy(net)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    problem = from_torch(way(net, inputs), x0=net)
    check_derivatives(problem, Function(by_the_argument(other, inputs), other).objective)
    res = minimize(problem, options={"maxiter": 3}, rng=0)
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    assert all(p.grad is None and isinstance(p, nn.Parameter) for p in net.parameters())
    assert list(problem.unflatten(res.x)) == [name for name, _ in net.named_parameters()]
    problem.load(res.x)
    with torch.no_grad():
        assert float(way(net, inputs)(net)) == pytest.approx(res.fun, rel=1e-12)


def test_a_module_that_returns_its_loss():
    class Loss(nn.Linear):
        def forward(self, batch):
            return ((super().forward(batch[0]) - batch[1]) ** 2).mean()

    X = draw(30, 2)
    net, batch = Loss(2, 1).double(), (X, X.sum(1, keepdim=True) + 1)
    problem = from_torch(lambda module: module(batch), x0=net)
    problem.load(minimize(problem).x)
    torch.testing.assert_close(net.weight.detach(), torch.ones(1, 2, dtype=FLOAT))
    with pytest.raises(TypeError, match=r"from_torch\(lambda module: module\(batch\), x0=net\)"):
        from_torch(net, x0=net)


# --- What a function may do ---


def test_linear_and_unused_parameters_have_no_curvature():
    scale = torch.ones(2, dtype=FLOAT, requires_grad=True)
    linear = from_torch(lambda theta: (scale * theta["a"]).sum(), x0={"a": draw(2), "b": draw(3)})
    g = linear.value_and_gradient(linear.x0)[1]
    assert g.tolist() == [1, 1, 0, 0, 0]
    assert linear.curvature(linear.x0)(torch.ones(5, dtype=FLOAT)).tolist() == [0.0] * 5
    mixed = from_torch(lambda theta: theta[0].sum() + (theta[1] ** 2).sum(), x0=[draw(1), draw(2)])
    assert mixed.curvature(mixed.x0)(torch.ones(3, dtype=FLOAT)).tolist() == [0, 2, 2]
    plain = from_torch(lambda theta: theta.sum(), x0=draw(2))
    assert plain.curvature(plain.x0)(torch.ones(2, dtype=FLOAT)).tolist() == [0, 0]


# --- Options ---


def test_precision():
    x0, A = draw(8, dtype=torch.float32), draw(8, 8, dtype=torch.float32)

    def fun(theta):
        return ((A @ theta - 1) ** 2).sum()

    coarse = from_torch(fun, x0=x0, precision="bfloat16")
    exact = from_torch(fun, x0=x0)
    assert coarse.traits.noise == 1e-3
    assert coarse.value(x0) == pytest.approx(exact.value(x0), rel=0.1)
    assert coarse.value(x0) != exact.value(x0)
    finer = coarse.in_finer_arithmetic().in_finer_arithmetic()
    assert finer.traits.noise is None
    assert finer.value(x0) == exact.value(x0)
    with pytest.warns(RuntimeWarning, match="in float64 the model fails"):  # A is float32
        assert exact.in_finer_arithmetic() is None
    with pytest.raises(ValueError, match="precision='low'"):
        from_torch(fun, x0=x0, precision="low")


# --- Samples ---


def logistic(dtype=FLOAT):
    """A mean logistic loss, in torch and the optimum that SciPy finds."""
    X = draw(300, 4, dtype=dtype)
    y = torch.sign(
        X @ torch.tensor([1.0, -2, 0.5, 0], dtype=dtype) + draw(300, dtype=dtype, seed=1)
    )

    def fun(theta, idx):
        margins = y[idx] * (X[idx] @ theta["w"] + theta["b"])
        return nn.functional.softplus(-margins).mean() + 0.01 * (theta["w"] ** 2).sum()

    def whole(x):
        margins = y.numpy() * (X.numpy() @ x[:4] + x[4])
        return np.logaddexp(0, -margins).mean() + 0.01 * (x[:4] @ x[:4])

    best = scipy.optimize.minimize(whole, np.zeros(5), tol=1e-10)
    x0 = {"w": torch.zeros(4, dtype=dtype), "b": torch.zeros((), dtype=dtype)}
    return fun, x0, best.x


def own_sets(iteration, rng):
    B, C = (torch.from_numpy(rng.choice(300, 100, replace=False)) for _ in range(2))
    return slice(None), B, C


@pytest.mark.parametrize(
    "subsets",
    [
        300,
        ksdmin.Subsets(300, curvature=0.3, search=0.3),
        ksdmin.Subsets(own_sets, full=slice(None)),
    ],
    ids=["number", "Subsets", "callable"],
)
def test_subsets(subsets):
    fun, x0, best = logistic()
    problem = from_torch(fun, x0=x0, subsets=subsets)
    res = minimize(problem, rng=0, options={"gtol": 1e-6})
    assert res.success
    np.testing.assert_allclose(res.x.numpy(), best, atol=1e-4)
    idx = torch.arange(7)
    part = problem.value_and_gradient(res.x, idx)
    assert part[0] == pytest.approx(float(fun(problem.unflatten(res.x), idx)))


# --- What is refused ---


def test_returns_that_are_refused():
    x0 = draw(3)

    def told(error, match, fun, x0=x0):
        problem = from_torch(fun, x0=x0)
        for verb in (problem.value, problem.value_and_gradient, problem.curvature):
            with pytest.raises(error, match=match):
                verb(problem.x0)

    told(ValueError, r"must return a scalar, not a tensor of shape \(3,\)", lambda t: t**2)
    told(TypeError, "must return a scalar tensor, not float.*item", lambda t: t.sum().item())
    told(TypeError, "must return a scalar tensor, not NoneType", lambda t: None)
    told(TypeError, "real floating number, not torch.complex128", lambda t: t.sum() * 1j)
    told(TypeError, "real floating number, not torch.int64", lambda t: t.sum().long())
    told(ValueError, "does not depend on x0's tensors", lambda t: t.detach().sum())
    told(ValueError, "does not depend on x0's tensors", lambda t: torch.ones(()))
    other = draw(2).requires_grad_()
    problem = from_torch(lambda t: (other**2).sum(), x0=x0)
    for verb in (problem.value_and_gradient, problem.curvature):
        with pytest.raises(ValueError, match="does not depend on x0's tensors"):
            verb(x0)


@pytest.mark.parametrize(
    ("error", "match", "x0"),
    [
        (TypeError, "x0: expected a tensor, a module, or.*, not ndarray", np.zeros(3)),
        (TypeError, "not ndarray at 'a.1'", {"a": [torch.zeros(1), np.zeros(3)]}),
        (TypeError, "not float", 1.0),
        (TypeError, "not str", "x"),
        (TypeError, "dtype torch.int64; expected float32 or float64", torch.arange(3)),
        (TypeError, "torch.float16; expected float32", torch.zeros(3, dtype=torch.half)),
        (TypeError, "dtype torch.complex64; expected", torch.zeros(3, dtype=torch.complex64)),
        (ValueError, "share one dtype and device", [torch.zeros(1), torch.zeros(1).double()]),
        (ValueError, "x0 is empty", torch.zeros(0)),
        (ValueError, "no trainable parameter", []),
        (ValueError, "no trainable parameter", nn.Tanh()),
        (ValueError, "the same tensor twice", [SHARED := torch.zeros(2), SHARED]),
    ],
)
def test_x0_that_is_refused(error, match, x0):
    with pytest.raises(error, match=match):
        from_torch(bowl, x0=x0)


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"loss": nn.MSELoss()}, TypeError, "loss= goes with a model, not with x0="),
        ({"data": (1, 2)}, TypeError, "data= goes with a model"),
        ({"params": ["w"]}, TypeError, "params= goes with a model"),
        ({"memory_budget": 1e9}, TypeError, "memory_budget= goes with a model"),
        ({"curvature": "gauss-newton"}, ValueError, "'gauss-newton' needs a model with outputs"),
        ({"curvature": "spam"}, ValueError, "curvature='spam': expected one of"),
        ({"l2": -1.0}, ValueError, "l2=-1.0: expected numbers that are not negative"),
        ({"l2": "much"}, ValueError, "l2='much': expected numbers"),
        ({"subsets": "many"}, TypeError, "subsets: expected the number of samples"),
    ],
)
def test_arguments_that_are_refused(given, error, match):
    with pytest.raises(error, match=match):
        from_torch(bowl, x0=draw(3), **given)


def test_a_model_needs_loss_and_data():
    net, X = tiny_net(), draw(9, 1)
    with pytest.raises(TypeError, match=r"loss= is missing: a model needs loss and data; .* x0="):
        from_torch(net)
    with pytest.raises(TypeError, match="data= is missing"):
        from_torch(net, nn.MSELoss())
    with pytest.raises(TypeError, match="subsets= goes with a plain function"):
        from_torch(net, nn.MSELoss(), (X, X), subsets=9)
    with pytest.raises(TypeError, match=r"expected a function fun\(theta\), not int"):
        from_torch(3, x0=draw(2))


def test_idx_that_does_not_fit():
    problem = from_torch(lambda theta: bowl(theta), x0=draw(3), subsets=10)
    with pytest.raises(TypeError) as caught:
        minimize(problem)
    assert any("fun(theta, idx)" in note for note in caught.value.__notes__)
    problem = from_torch(bowl, x0=draw(3))
    with pytest.raises(ValueError, match="asked for some samples only: give subsets="):
        minimize(problem, subsets=ksdmin.Subsets(1000, curvature=0.1, search=0.1))


def test_points_that_are_refused():
    problem = from_torch(bowl, x0=draw(3))
    with pytest.raises(TypeError, match=r"x must be a tensor of torch\.float64 on cpu"):
        problem.value(np.zeros(3))
    with pytest.raises(TypeError, match=r"not a Tensor torch\.float32 cpu"):
        problem.value(torch.zeros(3))
    with pytest.raises(ValueError, match="x has shape"):
        problem.curvature(draw(4))


# --- minimize(fun, tensor) ---


def rosen(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def watched(fun):
    """`fun`, and the list of what it is called with."""
    seen = []

    def wrapper(x, *args):
        seen.append(x.detach().clone())
        return fun(x, *args)

    return wrapper, seen


START = torch.tensor([-1.2, 1.0, 0.5, 2.0], dtype=FLOAT)


@pytest.mark.parametrize("method", ["ksd", "hf", "L-BFGS-B", "trust-ncg", "trust-exact"])
def test_minimize_differentiates_a_torch_function(method):
    res = minimize(rosen, START, method=method, tol=1e-7)
    assert res.success
    assert type(res.x) is type(res.jac) is torch.Tensor
    assert not res.x.requires_grad
    assert float(torch.func.grad(rosen)(res.x).abs().max()) < 1e-3
    assert START.tolist() == [-1.2, 1.0, 0.5, 2.0]


def test_the_trial_calls_are_counted():
    fun, seen = watched(rosen)
    res = minimize(fun, START, options={"maxiter": 0})
    assert len(seen) == res.nfev == 3
    assert res.njev == 1


def test_args_and_precond_are_passed_on():
    def fun(x, target, power):
        return ((x - target) ** power).sum()

    def precond(x, target, power):
        assert (target, power) == (3.0, 2)
        return torch.full_like(x, 2.0)

    res = minimize(fun, torch.zeros(3), args=(3.0, 2), precond=precond)
    assert res.success
    assert res.preconditioner == "diagonal"
    assert res.nhev > 0
    assert res.x.tolist() == pytest.approx([3.0] * 3, abs=1e-4)
    with pytest.raises(ValueError, match="precond must be positive: entry 1 is -1"):
        minimize(rosen, START, precond=torch.tensor([1, -1, 1, 1], dtype=FLOAT))


def test_subsets_of_minimize():
    fun, _, best = logistic()

    def flat(x, idx):
        return fun({"w": x[:4], "b": x[4]}, idx)

    res = minimize(flat, torch.zeros(5, dtype=FLOAT), subsets=300, rng=0, options={"gtol": 1e-6})
    assert res.success
    assert res.nhev > 0
    np.testing.assert_allclose(res.x.numpy(), best, atol=1e-4)
    # sets that do not name the whole: it is differenced
    res = minimize(flat, torch.zeros_like(res.x), subsets=own_sets, rng=0, options={"maxiter": 2})
    assert res.nhev == 0


def test_bounds_hold_from_the_first_call_on():
    fun, seen = watched(lambda x: ((x - 3) ** 2).sum())
    with pytest.warns(scipy.optimize.OptimizeWarning, match="x0 lies outside"):
        res = minimize(fun, torch.full((3,), 5.0, dtype=FLOAT), bounds=[(0, 2)] * 3)
    assert res.success
    assert res.x.tolist() == [2.0] * 3
    assert all(bool(((x >= 0) & (x <= 2)).all()) for x in seen)


def no_graph(x):
    return rosen(x.detach())


def a_float(x):
    return float(rosen(x))


def numpy_inside(x):
    return scipy.optimize.rosen(x.numpy())


def graph_of_something_else(x, scale=torch.ones((), dtype=FLOAT, requires_grad=True)):  # noqa: B008
    return scale * rosen(x.detach())


@pytest.mark.parametrize("fun", [no_graph, a_float, numpy_inside, graph_of_something_else])
def test_without_a_graph_there_are_differences(fun):
    res, before = minimize(fun, START), minimize(fun, START, jac="2-point")
    assert res.nhev == 0
    assert torch.equal(res.x, before.x)
    assert res.nfev == before.nfev


@pytest.mark.parametrize("given", [{"jac": "3-point"}, {"jac": False}, {"hess": "2-point"}])
def test_a_scheme_is_respected(given):
    assert minimize(rosen, START, **given, options={"maxiter": 2}).nhev == 0


def test_an_error_comes_as_before():
    def fun(x):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        minimize(fun, START)
    assert torch.equal(caught.value.ksdmin_result.x, START)
    with pytest.raises(ValueError, match="one dimension"):
        minimize(rosen, START.view(2, 2))
    with pytest.raises(ValueError, match="must return a scalar value"):
        minimize(lambda x: x**2, START)


def test_a_function_that_detaches_a_part_of_x_is_differenced():
    """Its graph would give a wrong gradient, and a false success."""

    def fun(x):
        return ((x - 1) ** 2).sum() + (x[0].item() - 3) ** 2

    res = ksdmin.minimize(fun, torch.zeros(3, dtype=torch.float64), options={"gtol": 1e-4})
    assert res.x.tolist() == pytest.approx([2, 1, 1], abs=1e-3)
    assert res.nhev == 0
