"""What used to go wrong without a word: wrong numbers, or a run that solves another problem."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import ksdmin

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.adapters.test_flat_problem import ADAPTERS, from_torch  # noqa: E402
from tests.adapters.torch.zoo import Forward  # noqa: E402

N = 40


def samples(outputs=1, dtype=torch.float64):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((N, 3)), rng.standard_normal((N, outputs))
    return torch.tensor(X, dtype=dtype), torch.tensor(Y, dtype=dtype)


def linear(outputs=1):
    torch.manual_seed(0)
    return nn.Linear(3, outputs).double()


# The number of samples


@ADAPTERS
@pytest.mark.parametrize("subsets", [200_000, 10, ksdmin.Subsets(10)])
def test_subsets_have_as_many_samples_as_the_data(adapter, subsets):
    n = subsets if isinstance(subsets, int) else subsets.n
    message = rf"subsets: {n} samples, but the problem has {N}.*ksdmin\.Subsets\({N}, \.\.\.\)"
    with pytest.raises(ValueError, match=message):
        ksdmin.minimize(adapter(), subsets=subsets)


# Indices


@ADAPTERS
@pytest.mark.parametrize("kind", [list, np.array, lambda idx: range(idx[0], idx[0] + 1)])
def test_samples_that_do_not_exist(adapter, kind):
    problem = adapter()
    for index in (N, N + 5, -N - 1):
        for verb in (problem.value, problem.value_and_gradient, problem.curvature):
            message = f"has the index {index}, but there are {N} samples"
            with pytest.raises(IndexError, match=message):
                verb(problem.x0, kind([index]))


@ADAPTERS
def test_other_names_of_the_same_samples(adapter):
    problem = adapter()
    x = problem.x0 + 1
    mask = np.arange(N) >= N - 2
    right = problem.value(x, [N - 2, N - 1])
    for same in ([-2, -1], mask, mask.tolist(), slice(-2, None), slice(None, -3, -1)):
        assert problem.value(x, same) == pytest.approx(right, rel=1e-6)
    whole = problem.value(x, slice(None, None, -1))
    assert whole == pytest.approx(problem.value(x), rel=1e-6)


@ADAPTERS
@pytest.mark.parametrize("idx", [[], slice(0, 0), [0.5], [True, False], [[0, 1]], 3])
def test_what_is_no_set(adapter, idx):
    problem = adapter()
    with pytest.raises(ValueError, match=f"at least one index, or of one bool for each of the {N}"):
        problem.value(problem.x0, idx)


# Where the next run starts


def test_load_moves_the_start():
    problem = from_torch()
    first = ksdmin.minimize(problem)
    problem.load(first.x)
    assert torch.equal(problem.x0, first.x)
    first.x += 1  # the start is a copy
    again = ksdmin.minimize(problem)
    assert again.nit == 0
    assert again.fun == pytest.approx(first.fun)


# Losses that read parameters


class ScaledMSE(nn.MSELoss):
    """Torch's loss, which the adapter copies, with a parameter of its own."""

    def forward(self, z, y):
        return super().forward(self.scale * z, y)


def squares(z, y):
    return (z - y).square().sum(1)


def test_a_loss_that_reads_the_model():
    net = linear()
    message = r"reads the parameter 'weight' of the model.*use l2=.*from_torch\(fun, x0=model\)"
    for penalty in (lambda: net.weight.pow(2).sum(), lambda: net(torch.eye(3).double()).sum()):
        with pytest.raises(ValueError, match=message):
            ksdmin.from_torch(net, lambda z, y, p=penalty: squares(z, y) + p(), samples())


@pytest.mark.parametrize("loss", [Forward(lambda m, z, y: squares(m.scale * z, y)), ScaledMSE()])
def test_a_loss_with_parameters_of_its_own(loss):
    loss.scale = nn.Parameter(torch.ones((), dtype=torch.float64))
    message = r"the loss reads parameters .*not the model's.*freeze them"
    with pytest.raises(ValueError, match=message):
        ksdmin.from_torch(linear(), loss, samples())
    ksdmin.from_torch(linear(), loss.requires_grad_(False), samples())


def test_a_loss_that_reads_another_tensor():
    scale = torch.ones(1, dtype=torch.float64, requires_grad=True)
    with pytest.raises(ValueError, match=r"shape \(1,\)\) and are not the model's"):
        ksdmin.from_torch(linear(), lambda z, y: squares(scale * z, y), samples())


# Linear models


@pytest.mark.parametrize("precision", ["highest", "bfloat16"])
@pytest.mark.parametrize("dropout", [False, True])
def test_a_linear_model_is_linear_whatever_the_arithmetic(precision, dropout):
    inner = nn.Dropout(0.5) if dropout else nn.Identity()
    data = samples(2, torch.float32)
    for net, nonlinear in (
        (nn.Sequential(inner, nn.Linear(3, 2)), False),
        (nn.Sequential(nn.Linear(3, 8), inner, nn.Tanh(), nn.Linear(8, 2)), True),
    ):
        problem = ksdmin.from_torch(net, nn.MSELoss(), data, precision=precision)
        assert problem.traits.nonlinear is nonlinear


def test_a_model_that_overflows_is_not_linear():
    growth = Forward(
        lambda m, x: torch.exp(300 * (m.rate - 1) * x[:, :1].abs()),
        rate=nn.Parameter(torch.tensor([1.0])),
    )
    problem = ksdmin.from_torch(growth, nn.MSELoss(), samples(1, torch.float32))
    assert problem.traits.nonlinear


# Threads


def deep(dropout=False):
    torch.manual_seed(0)
    layers = [nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.2 if dropout else 0), nn.Linear(8, 1)]
    return nn.Sequential(*layers).double()


@pytest.mark.parametrize("dropout", [False, True])
def test_values_in_threads(dropout):
    net = deep(dropout)
    problem = ksdmin.from_torch(net, nn.MSELoss(), samples(), rng=0)
    before = [parameter.detach().clone() for parameter in net.parameters()]
    points = [problem.x0 + 0.1 * i for i in range(3)]
    right = [evaluate(problem, x) for x in points]
    with ThreadPoolExecutor(3) as pool:
        rows = list(pool.map(lambda x: [evaluate(problem, x) for _ in range(40)], points))
    for row, expected in zip(rows, right, strict=True):
        assert row == [expected] * 40
    assert all(type(parameter) is nn.Parameter for parameter in net.parameters())
    assert all(map(torch.equal, before, net.parameters()))
    assert len(list(net.parameters())) == 4


def evaluate(problem, x):
    """The value, the gradient's norm, and the product's."""
    value, g = problem.value_and_gradient(x)
    return problem.value(x), value, float(g.norm()), float(problem.curvature(x)(x).norm())


def test_runs_in_threads():
    problem = ksdmin.from_torch(deep(), nn.MSELoss(), samples(), rng=0)

    def run(shift):
        return ksdmin.minimize(problem, problem.x0 + shift, rng=0, options={"maxiter": 5})

    shifts = [0.0, 0.1, 0.2]
    right = [run(shift) for shift in shifts]
    with ThreadPoolExecutor(3) as pool:
        for res, expected in zip(pool.map(run, shifts), right, strict=True):
            assert torch.equal(res.x, expected.x)
            assert (res.fun, res.nfev, res.nhev) == (expected.fun, expected.nfev, expected.nhev)


# params=


@pytest.mark.parametrize(
    "choose",
    [
        lambda net: ["3"],
        lambda net: "3",
        lambda net: net[3].parameters(),
        lambda net: ["3.weight", net[3].bias],
        lambda net: [net[3].weight, "3"],
    ],
)
def test_params_by_module_and_by_parameter(choose):
    net = deep()
    problem = ksdmin.from_torch(net, nn.MSELoss(), samples(), params=choose(net))
    assert torch.equal(problem.x0, nn.utils.parameters_to_vector(net[3].parameters()))


def test_a_module_stands_for_its_trainable_parameters():
    net = deep()
    net[3].bias.requires_grad_(False)
    problem = ksdmin.from_torch(net, nn.MSELoss(), samples(), params=["3"])
    assert torch.equal(problem.x0, net[3].weight.flatten())
    net[3].requires_grad_(False)
    with pytest.raises(ValueError, match=r"no parameter of the module '3' requires a gradient"):
        ksdmin.from_torch(net, nn.MSELoss(), samples(), params=["3"])


# Arguments that were taken for something else, or ended in an error from inside


@ADAPTERS
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"curvature": 3}, r"curvature=3: expected one of"),
        ({"chunk_size": 7.5}, r"chunk_size=7\.5: expected a whole number of samples from 1 up"),
        ({"chunk_size": 0}, r"chunk_size=0: expected a whole number"),
        ({"memory_budget": "1GB"}, r"memory_budget='1GB': expected a number of bytes"),
        ({"l2": -1.0}, r"l2=-1\.0: expected numbers that are not negative"),
        ({"rng": -1}, r"rng=-1: expected a non-negative integer"),
    ],
)
def test_arguments_of_the_wrong_kind(adapter, given, message):
    with pytest.raises(ValueError, match=message):
        adapter(**given)


@pytest.mark.parametrize("returned", [None, (1.0, 2.0), 1.0])
def test_a_loss_that_returns_no_array(returned):
    name = type(returned).__name__
    with pytest.raises(TypeError, match=f"loss returned {name}: expected a tensor with one loss"):
        ksdmin.from_torch(linear(), lambda z, y: returned, samples())
    jnp = pytest.importorskip("jax.numpy")
    data = tuple(part.numpy().astype("float32") for part in samples())
    with pytest.raises(TypeError, match=f"loss returned {name}: expected an array with one loss"):
        ksdmin.from_jax(lambda W, X: X @ W, lambda z, y: returned, data, params=jnp.zeros((3, 1)))


# Success where nothing can be minimised


def test_labels_beyond_the_outputs():
    jnp = pytest.importorskip("jax.numpy")
    X, y = np.ones((5, 3), "float32"), np.array([0, 1, 2, 0, 1])
    with pytest.raises(ValueError, match="not including, the number of outputs, 2"):
        ksdmin.from_jax(
            lambda W, X: X @ W, "softmax-cross-entropy", (X, y), params=jnp.zeros((3, 2))
        )


UNCHANGED = "no parameter changes it"


def test_an_equation_of_second_order_for_a_net_of_relu():
    """Its second derivatives are zero: a run ended at once, with success."""
    net = nn.Sequential(nn.Linear(1, 5), nn.ReLU(), nn.Linear(5, 1)).double()
    points = torch.linspace(0, 1, 20).double()[:, None]

    def equation(net, x):
        x.requires_grad_()
        slope = torch.autograd.grad(net(x).sum(), x, create_graph=True)[0]
        return torch.autograd.grad(slope.sum(), x, create_graph=True)[0] + 1

    def border(net, x):
        return net(x) - 1

    with pytest.warns(UserWarning, match=UNCHANGED):
        ksdmin.from_torch(net, residuals=[(border, points[:1]), (equation, points)])


@pytest.mark.parametrize("library", ["jax", "autograd"])
def test_residuals_that_no_parameter_changes(library):
    pytest.importorskip(library)
    make = getattr(ksdmin, f"from_{library}")
    with pytest.warns(UserWarning, match=UNCHANGED):
        make(residuals=[(lambda p, x: 0 * (x @ p) + 1, np.ones((9, 3)))], params=np.zeros(3))


def test_the_same_at_a_few_points_only():
    """A hard boundary condition: the first points are of the border."""
    points = torch.linspace(0, 1, 20).double()[:, None]
    points[:8] = 0

    def at(net, x):
        return x * net(x.expand(-1, 3)) - 1

    ksdmin.from_torch(linear(), residuals=[(at, points)])


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_a_derivative_that_is_cut_off(library):
    """The gradient is zero at the start, but the function has a slope."""
    if library == "torch":
        start = torch.zeros(3, dtype=torch.float64)
        problem = ksdmin.from_torch(lambda x: ((x.detach() - 1) ** 2).sum() + 0 * x[0], x0=start)
    else:
        jax = pytest.importorskip("jax")
        stop = jax.lax.stop_gradient
        problem = ksdmin.from_jax(lambda x: ((stop(x) - 1) ** 2).sum(), x0=np.zeros(3, "float32"))
    with pytest.warns(RuntimeWarning, match="the gradient is zero at x0, but fun has a slope"):
        ksdmin.minimize(problem)


# Blocks that took the Gauss-Newton steps from the others


def with_blocks(library, prior):
    """Residuals of a line's sine, and of a parameter; all, and those of the parameter alone."""
    points = np.linspace(0, 1, 20)[:, None]
    if library == "torch":
        w = nn.Parameter(torch.ones(1, 70, dtype=torch.float64))
        line = Forward(lambda m, x: torch.sin(x @ m.w).sum(1), w=w)
        fit = lambda net, x: net(x) - 1  # noqa: E731
        small = lambda net: prior * net.w[0]  # noqa: E731
        points, start = torch.tensor(points), {"model": line}
    else:
        jnp = pytest.importorskip("jax.numpy")
        fit = lambda w, x: jnp.sin(x @ w).sum(1) - 1  # noqa: E731
        small = lambda w: prior * w[0]  # noqa: E731
        points, start = points.astype("f"), {"params": np.ones((1, 70), "f")}
    make = getattr(ksdmin, f"from_{library}")
    return make(residuals=[(fit, points), (fit, points[1:2]), (small, None)], **start), make(
        residuals=[(small, None)], **start
    )


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_blocks_that_are_linear_or_small(library):
    problem, linear = with_blocks(library, prior=0.1)
    assert problem.traits.has_jacobian
    assert linear.traits.has_matrix
    assert not linear.traits.has_jacobian
    x0 = np.asarray(problem.x0)
    jacobian = problem.jacobian(problem.x0)
    rows, residuals = np.asarray(jacobian.rows), np.asarray(jacobian.residuals)
    np.testing.assert_allclose(rows.T @ residuals, problem.jac(x0), rtol=1e-4, atol=1e-5)
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 5})
    assert res.kinds["gauss-newton"] > 0
