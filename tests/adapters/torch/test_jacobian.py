"""The rows of the Jacobian are those of single backward passes, however they are computed."""

import pytest
import torch
from torch import nn
from torch.autograd.functional import jacobian

import ksdmin
from tests.adapters.torch.zoo import Forward
from tests.nets import tanh_net
from tests.zoo.registry import Function

DATA = torch.linspace(-1, 1, 80, dtype=torch.float64)[:, None]


def derivative(m, x):
    """By autograd.grad, which vmap over samples does not take."""
    x = x.requires_grad_()
    return torch.autograd.grad(m.u(x).sum(), x, create_graph=True)[0]


def net(outputs=1):
    return tanh_net(1, 6, outputs).double()


class Recurrent(nn.Module):
    """What the last state of some steps says; a sample has one row for each step."""

    def __init__(self, samples_first):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.steps = nn.GRU(1, 3, 2, batch_first=samples_first).double()
            self.last = nn.Linear(3, 1).double()

    def forward(self, x):
        x = torch.stack([x, x**2, x.cos(), 1 - x], 1)
        return self.last(self.steps(x if self.steps.batch_first else x.transpose(0, 1))[1][-1])


def decay(m, x):
    """The values at ten times."""
    times = torch.linspace(0, 2, 10, dtype=torch.float64, device=x.device)
    return m.start * torch.exp(-m.rate * times * (2 + x))


def few_parameters():
    start, rate = (nn.Parameter(torch.tensor(value).double()) for value in (1.5, 0.7))
    return Forward(decay, start=start, rate=rate)


MODELS = {
    "few parameters": few_parameters,
    "one output": net,
    "three outputs": lambda: net(3),
    "nested": lambda: Forward(derivative, u=net()),
    "samples first": lambda: Recurrent(samples_first=True),
    "steps first": lambda: Recurrent(samples_first=False),
}


OUTPUTS = {"three outputs": 3, "few parameters": 10}  # of the others, one


def made(name, **given):
    model = MODELS[name]()
    targets = torch.cos(DATA).repeat(1, OUTPUTS.get(name, 1))
    return ksdmin.from_torch(model, nn.MSELoss(), (DATA, targets), **given)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("given", [{}, {"chunk_size": 5, "l2": 0.1}], ids=str)
def test_it_is_the_curvature_and_the_gradient(name, given):
    problem = made(name, **given)
    idx = torch.tensor([1, 5, 17, 40, 41, 79])
    x = problem.x0 + 0.1
    J, g = problem.jacobian(x, idx), problem.value_and_gradient(x, idx)[1]
    product = problem.curvature(x, idx)
    H = torch.stack([product(unit).clone() for unit in torch.eye(len(x), dtype=x.dtype)])
    torch.testing.assert_close(J.rows.T @ J.rows + J.penalty * torch.eye(len(x)), H)
    torch.testing.assert_close(J.residuals @ J.rows + J.penalty * x, g)


def test_few_parameters_have_columns():
    res = ksdmin.minimize(made("few parameters"), rng=0, options={"maxiter": 1})
    assert (list(res.kinds), res.nhev) == (["gauss-newton"], 2)


@pytest.mark.parametrize(
    ("loss", "has"), [(nn.BCEWithLogitsLoss(), True), (nn.CrossEntropyLoss(), False)], ids=str
)
def test_losses_that_join_the_outputs_of_a_sample_have_none(loss, has):
    model = net(3) if not has else net()
    targets = torch.arange(80) % 3 if not has else (DATA > 0).double()
    problem = ksdmin.from_torch(model, loss, (DATA, targets))
    assert problem.traits.has_jacobian == has
    if not has:
        with pytest.raises(ValueError, match="no Jacobian"):
            problem.jacobian(problem.x0)


@pytest.mark.parametrize("curvature", ["hessian", "fisher", "empirical-fisher"])
def test_other_curvatures_have_none(curvature):
    assert not made("one output", curvature=curvature).traits.has_jacobian


# From the uses of the weights, for models that differentiate their outputs


class Own(nn.Module):
    """Products of one's own, and a weight that is used twice."""

    def __init__(self, factors=0):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first = nn.Parameter(torch.randn(2, 6, generator=generator))
        self.inner = nn.Linear(6, 6)
        self.last = nn.Linear(6, 2, bias=False)
        self.scale = nn.Parameter(torch.linspace(1, 2, factors)) if factors else None

    def forward(self, x):
        z = torch.tanh(x @ self.first)
        z = torch.tanh(self.inner(torch.tanh(self.inner(z))))
        z = self.last(z)
        return z if self.scale is None else self.scale.sum() * z


def laplace(net, x):
    """All second derivatives of the first output, and the values."""
    x = x.detach().requires_grad_()
    u = net(x)
    du = torch.autograd.grad(u[:, 0].sum(), x, create_graph=True)[0]
    bends = [torch.autograd.grad(du[:, k].sum(), x, create_graph=True)[0][:, k] for k in range(2)]
    return torch.cat([sum(bends)[:, None], u], 1)


@pytest.mark.parametrize(
    ("net", "way"),
    [
        (tanh_net(2, 8, 5, 1), "uses"),
        (tanh_net(2, 8, 5, 3), "uses"),
        (Own(), "uses"),
        (Own(factors=2), "uses"),
        (Own(factors=50), "graphs"),
    ],
    ids=["one output", "three outputs", "a weight used twice", "two factors", "50 factors"],
)
def test_rows_are_those_of_the_residuals(net, way):
    X = torch.randn(70, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    problem = ksdmin.from_torch(net.double(), residuals=[(laplace, X)])
    assert problem._blocks[0]._rows.way == way
    found = problem.jacobian(problem.x0)
    assert not found.rows.requires_grad
    expected = jacobian(Function(laplace, net, (X,)).objective, problem.x0)
    rows = expected.reshape(found.rows.shape)
    scale = (found.rows * rows).sum() / (rows * rows).sum()  # of the mean of their squares
    torch.testing.assert_close(found.rows, scale * rows)


def slope(net, x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(net(x).sum(), x, create_graph=True)[0][:, :1]


def in_one_region(net, x):
    left = x[:, 0] < 0
    return torch.zeros_like(x[:, :1]).masked_scatter(left[:, None], slope(net, x[left]))


def sorted_first(net, x):
    order = torch.argsort(x[:, 0])
    return slope(net, x[order])[torch.argsort(order)]


@pytest.mark.parametrize("residuals", [in_one_region, sorted_first])
def test_samples_that_are_left_out_or_sorted(residuals):
    """The first samples, which a model is looked at with, show nothing of it."""
    X = torch.linspace(-1, 1, 100, dtype=torch.float64)[:, None].expand(-1, 2).contiguous()
    problem = ksdmin.from_torch(tanh_net(2, 8, 5, 1).double(), residuals=[(residuals, X)])
    found = problem.jacobian(problem.x0)
    g = problem.value_and_gradient(problem.x0)[1]
    torch.testing.assert_close(found.residuals @ found.rows, g)
    assert problem._blocks[0]._rows.way == "graphs"


@pytest.mark.parametrize("loss", [nn.HuberLoss(), nn.SmoothL1Loss(), nn.L1Loss()])
@pytest.mark.parametrize(("far", "samples_with_rows"), [(0.1, True), (50.0, False)])
def test_rows_that_would_miss_most_of_the_gradient_are_not_used(loss, far, samples_with_rows):
    net = tanh_net(2, 4, 1).double()
    x = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(30, 2)
    problem = ksdmin.from_torch(net, loss, (x, net(x).detach() + far))
    assert problem.traits.has_jacobian is (samples_with_rows and not isinstance(loss, nn.L1Loss))


@pytest.mark.cuda
@pytest.mark.parametrize("name", MODELS)
def test_on_a_gpu_graphs_compute_the_same(name):
    rows = {}
    for graphs in (True, False):
        model = MODELS[name]().cuda()
        x = DATA.cuda()
        targets = torch.cos(x).repeat(1, OUTPUTS.get(name, 1))
        problem = ksdmin.from_torch(model, nn.MSELoss(), (x, targets), graphs=graphs)
        for idx in (slice(None), torch.arange(70, device="cuda")):  # the latter is padded
            J = problem.jacobian(problem.x0, idx)
            rows.setdefault(str(idx)[:8], []).append((J.rows, J.residuals))
        if graphs:
            assert problem._sums._graphs is not None
    for captured, eager in rows.values():
        torch.testing.assert_close(captured, eager)


def scaled():
    """A parameter beside matrix products: its diagonal needs the gradient of every sample."""
    scale = nn.Parameter(torch.full((6,), 0.5, dtype=torch.float64))
    return Forward(lambda m, x: m.net[2](torch.tanh(m.net[0](x) * m.scale)), scale=scale, net=net())


@pytest.mark.parametrize("curvature", ["gauss-newton", "hessian"])
def test_parameters_that_are_not_varied_leave_no_graph(curvature):
    """Those beside `params` require a gradient, as modules have it. (Warnings are errors here.)"""
    problem = ksdmin.from_torch(
        scaled(), nn.MSELoss(), (DATA, DATA.sin()), params=["scale"], curvature=curvature
    )
    if curvature == "gauss-newton":
        assert not problem.jacobian(problem.x0).rows.requires_grad
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 10})
    assert not res.x.requires_grad


def test_points_that_require_a_gradient_leave_no_graph():
    points = DATA[::4].clone().requires_grad_()

    def growth(u):  # u' = u
        (slope,) = torch.autograd.grad(u(points).sum(), points, create_graph=True)
        return (slope - u(points))[:, 0]

    def start(u):  # u(-1) = 1
        return (u(points[:1]) - 1)[:, 0]

    problem = ksdmin.from_torch(net(), residuals=[(growth, None), (start, None)])
    assert not problem.jacobian(problem.x0).rows.requires_grad
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 5})
    assert not res.x.requires_grad
