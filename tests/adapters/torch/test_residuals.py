"""Blocks of squared residuals: a physics-informed net for Poisson's equation."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import ksdmin
from tests.adapters.torch.dense import assert_close, assert_same, directions, multiply
from tests.nets import tanh_net
from tests.zoo.registry import Function

# Said by torch itself, of its own forward-mode differentiation.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

GENERATOR = torch.Generator().manual_seed(0)
INSIDE = torch.rand(30, 2, generator=GENERATOR, dtype=torch.float64)
EDGE = torch.rand(8, 2, generator=GENERATOR, dtype=torch.float64)
EDGE[:, 0] = EDGE[:, 0].round()
WHOLE = slice(None)


def source(x):
    return 2 * torch.pi**2 * torch.sin(torch.pi * x[:, 0]) * torch.sin(torch.pi * x[:, 1])


def by_autograd(net, x):
    x.requires_grad_()
    (du,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    second = [torch.autograd.grad(du[:, i].sum(), x, create_graph=True)[0][:, i] for i in (0, 1)]
    return second[0] + second[1] + source(x)


def by_hessian(net, x):
    H = torch.func.vmap(torch.func.hessian(lambda point: net(point[None])[0, 0]))(x)
    return H[:, 0, 0] + H[:, 1, 1] + source(x)


def by_jvp(net, x):
    def second(i):
        unit = torch.zeros_like(x)
        unit[:, i] = 1

        def slope(x):
            return torch.func.jvp(net, (x,), (unit,))[1]

        return torch.func.jvp(slope, (x,), (unit,))[1][:, 0]

    return second(0) + second(1) + source(x)


def boundary(net, x):
    return net(x)  # (N, 1)


def measured(net, batch):
    return torch.stack([net(batch["x"])[:, 0] - batch["u"], 0.1 * net(batch["x"])[:, 0]], 1)


def smallness(net):
    return 0.01 * net[0].weight


MEASURED = {"u": torch.ones(5, dtype=torch.float64), "x": INSIDE[:5]}
EQUATIONS = [by_autograd, by_hessian, by_jvp]
equations = pytest.mark.parametrize("equation", EQUATIONS)


def make_net(width=6):
    return tanh_net(2, width, 1).double()


def make_blocks(equation=by_autograd):
    return [
        (equation, INSIDE),
        (boundary, EDGE, 10.0),
        (measured, MEASURED, 0.5),
        (smallness, None, 2),
    ]


def make(equation=by_autograd, **options):
    return ksdmin.from_torch(make_net(), residuals=make_blocks(equation), **options)


def rows(data, idx):
    return {k: v[idx] for k, v in data.items()} if isinstance(data, dict) else data[idx].clone()


def written_out(net, x, parts=(WHOLE,) * 3):
    """The vectors of residuals, and their factors in the objective."""
    found = []
    blocks = make_blocks(by_autograd)
    for (r, data, *weight), idx in zip(blocks, (*parts, WHOLE), strict=True):
        batch = () if data is None else (rows(data, idx),)
        z = Function(r, net, batch).objective(x)
        found.append((z.reshape(-1), (weight or [1.0])[0] / z.numel()))
    return found


def objective(net, x, parts=(WHOLE,) * 3):
    return sum(w * z.square().sum() for z, w in written_out(net, x, parts))


def gauss_newton(net, x, parts=(WHOLE,) * 3):
    total = 0
    for i in range(4):
        J = torch.autograd.functional.jacobian(lambda x, i=i: written_out(net, x, parts)[i][0], x)
        total = total + 2 * written_out(net, x, parts)[i][1] * J.T @ J
    return total


PARTS = {
    "whole": (WHOLE, (WHOLE,) * 3),
    "part": (np.array([2, 3, 11, 31, 37, 38, 42, 43]), ([2, 3, 11], [1, 7], [0, 4])),
}
parts = pytest.mark.parametrize("part", PARTS)


@parts
@equations
def test_values_gradients_and_products(equation, part):
    net, (idx, by_block) = make_net(), PARTS[part]
    problem = make(equation)
    assert problem.subsets.n == 30 + 8 + 5 + 1
    x = problem.x0 + 0.1
    value = objective(net, x, by_block)
    assert problem.value(x, idx) == pytest.approx(value.item(), rel=1e-12)
    leaf = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(objective(net, leaf, by_block), leaf)
    assert_close(problem.value_and_gradient(x, idx)[1], g, 1e-9)
    V = directions(x)
    both = problem.value_and_projected_gradient(x, idx, V.T)
    assert both[0] == problem.value_and_gradient(x, idx)[0]
    assert_close(both[1], V.T @ g, 1e-9)
    exact = gauss_newton(net, x, by_block)
    assert_close(multiply(problem.curvature(x, idx), V), exact @ V, 1e-9)


def test_the_diagonal_has_the_scale_of_the_gauss_newton_matrix():
    """Whatever the sizes of the residuals and the weights are."""

    def of_size(net, batch):
        x, signs, size = batch
        return size[0] * 0 + net(x) + 1e3 * signs[:, None] * size[:, None]

    net, n = make_net(), 400
    x = torch.rand(n, 2, generator=GENERATOR, dtype=torch.float64)
    signs = torch.sign(torch.randn(n, generator=GENERATOR, dtype=torch.float64))
    blocks = [
        (of_size, (x, signs, torch.full((n,), size, dtype=torch.float64)), weight)
        for size, weight in ((1.0, 1.0), (0.01, 100.0))
    ]
    problem = ksdmin.from_torch(net, residuals=blocks, l2=1e-3)
    D = problem.value_and_gradient(problem.x0, diagonal=True)[2]
    exact = torch.stack([problem.curvature(problem.x0)(v) for v in torch.eye(len(D)).double()])
    assert_close(D, exact.diagonal(), 0.02)


def test_a_sampled_run_converges():
    rng = np.random.default_rng(0)
    X, few = rng.standard_normal((600, 4)), rng.standard_normal((5, 4))
    net = nn.Linear(4, 1).double()

    def line(net, batch):
        return net(batch[0])[:, 0] - batch[1]

    blocks = [(line, (X, X @ np.arange(4.0))), (line, (few, few @ np.ones(4)), 3.0)]
    problem = ksdmin.from_torch(net, residuals=blocks, l2=1e-3)
    res = ksdmin.minimize(problem, subsets=ksdmin.Subsets(605, 1.0, 0.1, 0.1), rng=0, tol=1e-8)
    assert res.success
    exact = ksdmin.minimize(problem, method="L-BFGS-B", tol=1e-12)
    assert res.fun == pytest.approx(exact.fun, rel=1e-8)


def test_requested_sets_are_drawn_by_block():
    sizes = set()

    def watched(net, x):
        sizes.add(len(x))
        return boundary(net, x)

    problem = ksdmin.from_torch(make_net(), residuals=[(by_autograd, INSIDE), (watched, EDGE)])
    sizes.clear()
    subsets, few = ksdmin.Subsets(38, 1.0, 0.2, 0.2), ["set_sizes", "gauss-newton"]
    ksdmin.minimize(problem, subsets=subsets, rng=0, options={"maxiter": 1, "without": few})
    assert sizes == {4, 8}  # all of this block, or half of the 8 samples of a set


def test_one_evaluation_of_the_sum_is_counted_once():
    problem = make()
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 2})
    assert res.nfev < 200
    counts = type(problem._counts)()
    counted = problem.counting(counts)
    counted.value(problem.x0)
    counted.value_and_gradient(problem.x0)
    counted.curvature(problem.x0)(problem.x0)
    assert (counts.nfev, counts.njev, counts.nhev) == (2, 1, 1)


def test_load_and_numpys_callables():
    net = make_net()
    problem = ksdmin.from_torch(net, residuals=make_blocks())
    x = problem.x0.numpy() + 0.1
    assert problem.fun(x) == problem.value(torch.tensor(x))
    assert problem.hessp(x, x).shape == problem.jac(x).shape == x.shape
    problem.load(x)
    assert torch.equal(nn.utils.parameters_to_vector(net.parameters()).detach(), problem.x0)
    with pytest.raises(TypeError, match=r"no unflatten: load\(x\) writes"):
        problem.unflatten(x)


@pytest.mark.parametrize(
    "how", [copy.deepcopy, lambda problem: pickle.loads(pickle.dumps(problem))]
)
def test_copies(how):
    problem = make(by_hessian, l2=0.1)  # it has a diagonal, too
    twin, x = how(problem), problem.x0 + 0.1
    assert_same(twin, problem)
    twin.load(x)
    assert not torch.equal(problem.x0, twin.x0)


def test_params_and_l2_by_name():
    net = make_net()
    blocks = [(by_autograd, INSIDE), (boundary, EDGE)]
    problem = ksdmin.from_torch(net, residuals=blocks, params=["2"], l2={"2.bias": 2.0})
    assert len(problem.x0) == 7
    plain = ksdmin.from_torch(net, residuals=blocks, params=["2"])
    assert problem.value(problem.x0) == pytest.approx(
        plain.value(plain.x0) + net[2].bias.item() ** 2
    )


def test_float32_turns_to_finer_arithmetic():
    blocks = [(boundary, EDGE.float()), (smallness, None)]
    problem = ksdmin.from_torch(make_net().float(), residuals=blocks, precision="high")
    assert problem.traits.noise == 1e-5
    finer = problem.in_finer_arithmetic()
    assert finer.traits.noise == 1e-7
    assert finer.in_finer_arithmetic().x0.dtype == torch.float64
    value, slopes = problem.value_and_projected_gradient(problem.x0, WHOLE, problem.x0[None])
    assert value == pytest.approx(problem.value(problem.x0), rel=1e-6)
    assert slopes.dtype == np.float64


def detached(net, x):
    return net(x).detach()


def mixing(net, x):
    return net(x) - net(x).mean()


OTHER = make_net()


def of_another_net(net, x):
    return OTHER(x)


def of_a_tensor(net, x):
    return x * torch.ones(1, dtype=x.dtype, requires_grad=True)


REFUSED = {
    "r returned one number: it must return the residuals": [(lambda m, x: m(x).mean(), EDGE)],
    r"r returned shape \(2, 1\) for 3 samples": [(lambda m, x: m(x)[1:], EDGE)],
    "the residuals do not depend on the model's parameters": [(detached, EDGE)],
    "mixes its samples": [(mixing, EDGE)],
    r"r returned tuple: expected one tensor .*columns": [(lambda m, x: (m(x),), EDGE)],
    "the weight of block 0 is 0; expected a positive": [(boundary, EDGE, 0)],
    "the weight of block 1 is inf": [(boundary, EDGE), (boundary, EDGE, float("inf"))],
    "the weight of block 0 is '1', not a number": [(boundary, EDGE, "1")],
    "Several arrays of data are a tuple": [(boundary, EDGE, EDGE)],
    r"not one of these: residuals=\[\(r, data\)\]": (boundary, EDGE),
    r"expected a list of \(r, data\).*, not dict": {"edge": (boundary, EDGE)},
    r"Convert a list of numbers: torch.tensor\(X\)": [(boundary, EDGE.tolist())],
    "read parameters .* are not the model's": [(of_another_net, EDGE)],
    "do not depend on any parameter of the model": [(of_a_tensor, EDGE)],
    "residuals: the list is empty": [],
    "residuals: expected a list of": 3,
    "block 0 is a tuple of 1; expected": [(boundary,)],
    "block 0 begins with a Tensor; expected a function": [(EDGE, boundary)],
    "data: the arrays have one row per sample, but differ in length": [(boundary, (EDGE, INSIDE))],
    "expected tensors or numpy arrays with one row per sample": [(boundary, "edge")],
}


@pytest.mark.parametrize("message", REFUSED)
def test_wrong_blocks(message):
    with pytest.raises((TypeError, ValueError), match=message):
        ksdmin.from_torch(make_net(), residuals=REFUSED[message])


def test_wrong_arguments():
    blocks = make_blocks()
    with pytest.raises(TypeError, match="loss= goes with"):
        ksdmin.from_torch(make_net(), nn.MSELoss(), residuals=blocks)
    with pytest.raises(TypeError, match="data= goes with"):
        ksdmin.from_torch(make_net(), data=(EDGE, EDGE), residuals=blocks)
    with pytest.raises(TypeError, match=r"needs the nn[.]Module that r is given, not NoneType"):
        ksdmin.from_torch(None, residuals=blocks)
    with pytest.raises(TypeError, match="with residuals= expected a name"):
        make(curvature=lambda x, idx: lambda v: v)


def test_an_error_says_which_block():
    with pytest.raises(ValueError, match="one number") as caught:
        ksdmin.from_torch(
            make_net(), residuals=[(boundary, EDGE), (lambda m, x: m(x).mean(), EDGE)]
        )
    assert "in block 1 of residuals=" in caught.value.__notes__


@pytest.mark.parametrize(
    ("r", "data"),
    [
        (lambda x: x, EDGE),
        (lambda x, net: net(x), EDGE),
        (lambda net, x, y: net(x) - y, (EDGE, EDGE)),
    ],
)
def test_a_function_of_other_arguments_is_told_its_own(r, data):
    with pytest.raises(TypeError) as caught:
        ksdmin.from_torch(make_net(), residuals=[(r, data)])
    assert any("r(net, batch)" in note for note in caught.value.__notes__)


def test_a_set_without_a_block_is_refused():
    problem = make()
    with pytest.raises(ValueError, match=r"none of block 1 of the residuals \(samples 30 to 37\)"):
        problem.value(problem.x0, np.array([1, 2, 40, 43]))


@pytest.mark.cuda
@equations
@pytest.mark.parametrize("graphs", [True, False])
def test_the_same_on_cuda(equation, graphs):
    on_cpu = make(equation, precond=None)
    net = make_net().cuda()
    blocks = make_blocks(equation)
    problem = ksdmin.from_torch(net, residuals=blocks, graphs=graphs, precond=None)
    x, idx = on_cpu.x0 + 0.1, PARTS["part"][0]
    on_device = torch.as_tensor(idx).cuda()
    for at, there in ((WHOLE, WHOLE), (idx, on_device)):
        for _ in range(2):  # replayed, too
            assert problem.value(x.cuda(), there) == pytest.approx(on_cpu.value(x, at), rel=1e-10)
            g = problem.value_and_gradient(x.cuda(), there)[1].cpu()
            assert_close(g, on_cpu.value_and_gradient(x, at)[1])
            product = problem.curvature(x.cuda(), there)(x.cuda()).cpu()
            assert_close(product, on_cpu.curvature(x, at)(x))
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 5})
    assert res.fun < res.history[0].value
    on_device[0] = 5  # a set that is filled again
    idx = np.array([5, *idx[1:]])
    assert problem.value(x.cuda(), on_device) == pytest.approx(on_cpu.value(x, idx), rel=1e-10)


def test_a_coefficient_that_is_no_parameter_of_the_model_is_an_error():
    """It would have stayed constant without a word."""
    net, c = nn.Linear(2, 1).double(), nn.Parameter(torch.ones(3, dtype=torch.float64))
    blocks = [(lambda net, x: c.sum() * net(x) - 1, INSIDE)]
    with pytest.raises(ValueError, match=r"of shape \(3,\).*not the model's.*model\.c ="):
        ksdmin.from_torch(net, residuals=blocks)
    c.requires_grad_(False)
    assert ksdmin.from_torch(net, residuals=blocks).x0.shape == (3,)
    net.c = nn.Parameter(torch.ones(3, dtype=torch.float64))
    blocks = [(lambda net, x: net.c.sum() * net(x) - 1, INSIDE)]
    # A frozen one of the model, and those that `params` leaves out, stay constant on purpose.
    assert ksdmin.from_torch(net, residuals=blocks, params=["weight"]).x0.shape == (2,)
