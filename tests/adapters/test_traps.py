"""What used to go wrong without a word: wrong numbers, or a run that solves another problem."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import ksdmin

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

N = 20


def samples(outputs=1, dtype=torch.float64):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((N, 3)), rng.standard_normal((N, outputs))
    return torch.tensor(X, dtype=dtype), torch.tensor(Y, dtype=dtype)


def linear(outputs=1):
    torch.manual_seed(0)
    return nn.Linear(3, outputs).double()


def torch_problem(**given):
    return ksdmin.from_torch(linear(), nn.MSELoss(), samples(), **given)


def autograd_problem():
    pytest.importorskip("autograd")
    data = tuple(part.numpy() for part in samples())
    return ksdmin.from_autograd(lambda W, X: X @ W, "squared-error", data, params=np.zeros((3, 1)))


def jax_problem():
    jnp = pytest.importorskip("jax.numpy")
    data = tuple(part.numpy().astype("float32") for part in samples())
    return ksdmin.from_jax(lambda W, X: X @ W, "squared-error", data, params=jnp.zeros((3, 1)))


every_adapter = pytest.mark.parametrize("make", [torch_problem, autograd_problem, jax_problem])

# The number of samples


@every_adapter
@pytest.mark.parametrize("subsets", [200_000, 10, ksdmin.Subsets(10)])
def test_subsets_have_as_many_samples_as_the_data(make, subsets):
    n = subsets if isinstance(subsets, int) else subsets.n
    message = rf"subsets: {n} samples, but the problem has {N}.*ksdmin\.Subsets\({N}, \.\.\.\)"
    with pytest.raises(ValueError, match=message):
        ksdmin.minimize(make(), subsets=subsets)


# Indices


@every_adapter
@pytest.mark.parametrize("kind", [list, np.array, lambda idx: range(idx[0], idx[0] + 1)])
def test_samples_that_do_not_exist(make, kind):
    problem = make()
    for index in (N, N + 5, -N - 1):
        for verb in (problem.value, problem.value_and_gradient, problem.curvature):
            message = f"has the index {index}, but there are {N} samples"
            with pytest.raises(IndexError, match=message):
                verb(problem.x0, kind([index]))


@every_adapter
def test_other_names_of_the_same_samples(make):
    problem = make()
    x = problem.x0 + 1
    mask = np.arange(N) >= N - 2
    right = problem.value(x, [N - 2, N - 1])
    for same in ([-2, -1], mask, mask.tolist(), slice(-2, None), slice(None, -3, -1)):
        assert problem.value(x, same) == pytest.approx(right, rel=1e-6)
    whole = problem.value(x, slice(None, None, -1))
    assert whole == pytest.approx(problem.value(x), rel=1e-6)


@every_adapter
@pytest.mark.parametrize("idx", [[], slice(0, 0), [0.5], [True, False], [[0, 1]], 3])
def test_what_is_no_set(make, idx):
    problem = make()
    with pytest.raises(ValueError, match=f"at least one index, or of one bool for each of the {N}"):
        problem.value(problem.x0, idx)


# Where the next run starts


def test_load_moves_the_start():
    problem = torch_problem()
    first = ksdmin.minimize(problem)
    problem.load(first.x)
    assert torch.equal(problem.x0, first.x)
    first.x += 1  # the start is a copy
    again = ksdmin.minimize(problem)
    assert again.nit == 0
    assert again.fun == pytest.approx(first.fun)


# Losses that read parameters


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, z, y):
        return (self.scale * z - y).square().sum(1)


class ScaledMSE(nn.MSELoss):
    """Torch's loss, which the adapter copies, with a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones((), dtype=torch.float64))

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


@pytest.mark.parametrize("make", [Scaled, ScaledMSE])
def test_a_loss_with_parameters_of_its_own(make):
    loss = make()
    message = rf"the loss {make.__name__} has parameters of its own \('scale'\).*freeze them"
    with pytest.raises(ValueError, match=message):
        ksdmin.from_torch(linear(), loss, samples())
    ksdmin.from_torch(linear(), loss.requires_grad_(False), samples())


def test_a_loss_that_reads_another_tensor():
    scale = torch.ones(1, dtype=torch.float64, requires_grad=True)
    with pytest.raises(ValueError, match=r"shape \(1,\)\) and are not parameters of the model"):
        ksdmin.from_torch(linear(), lambda z, y: squares(scale * z, y), samples())


# Losses as people have them


def classes():
    torch.manual_seed(0)
    return torch.randint(3, (N,))


FUNCTIONS = [
    (F.cross_entropy, nn.CrossEntropyLoss, classes),
    (F.nll_loss, nn.NLLLoss, classes),
    (F.mse_loss, nn.MSELoss, lambda: samples(3)[1]),
    (F.l1_loss, nn.L1Loss, lambda: samples(3)[1]),
    (F.smooth_l1_loss, nn.SmoothL1Loss, lambda: samples(3)[1]),
    (F.huber_loss, nn.HuberLoss, lambda: samples(3)[1]),
    (F.binary_cross_entropy_with_logits, nn.BCEWithLogitsLoss, lambda: samples(3)[1].sigmoid()),
    (F.poisson_nll_loss, nn.PoissonNLLLoss, lambda: samples(3)[1].exp()),
    (F.gaussian_nll_loss, nn.GaussianNLLLoss, lambda: (samples(3)[1], samples(3)[1].exp())),
    (F.soft_margin_loss, nn.SoftMarginLoss, lambda: samples(3)[1].sign()),
]


@pytest.mark.parametrize(("function", "module", "targets"), FUNCTIONS)
def test_functions_of_torch(function, module, targets):
    net, data = linear(3), (samples()[0], targets())
    given, named = (ksdmin.from_torch(net, loss, data) for loss in (function, module()))
    assert given.value(given.x0) == named.value(named.x0)
    v = torch.ones_like(given.x0)
    assert torch.equal(given.curvature(given.x0)(v), named.curvature(named.x0)(v))
    z, y = net(data[0]).detach(), data[1]
    own = function(z, *y) if isinstance(y, tuple) else function(z, y)
    assert given.value(given.x0) == pytest.approx(float(own))


def test_a_sigmoid_under_a_function_is_warned_of():
    net = nn.Sequential(linear(), nn.Sigmoid())
    X, Y = samples()
    with pytest.warns(UserWarning, match="ends in a sigmoid under BCELoss"):
        ksdmin.from_torch(net, F.binary_cross_entropy, (X, Y.sigmoid()))


class Reduced(nn.Module):
    """It has a reduction, and pays no heed to it."""

    reduction = "mean"

    def forward(self, z, y):
        return squares(z, y).mean()


@pytest.mark.parametrize("loss", [lambda z, y: squares(z, y).mean(), Reduced()])
def test_a_loss_that_is_a_mean(loss):
    message = r"one loss per sample, shape \(3,\): drop \.mean\(\), or use reduction='none'"
    with pytest.raises(ValueError, match=message):
        ksdmin.from_torch(linear(), loss, samples())


# Linear models


@pytest.mark.parametrize("precision", ["highest", "bfloat16"])
@pytest.mark.parametrize("dropout", [False, True])
def test_a_linear_model_is_linear_whatever_the_arithmetic(precision, dropout):
    torch.manual_seed(0)
    inner = nn.Dropout(0.5) if dropout else nn.Identity()
    data = samples(2, torch.float32)
    for net, nonlinear in (
        (nn.Sequential(inner, nn.Linear(3, 2)), False),
        (nn.Sequential(nn.Linear(3, 8), inner, nn.Tanh(), nn.Linear(8, 2)), True),
    ):
        problem = ksdmin.from_torch(net, nn.MSELoss(), data, precision=precision)
        assert problem.traits.nonlinear is nonlinear


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
