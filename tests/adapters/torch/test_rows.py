"""Rows of a Jacobian from the uses of the weights, for models that differentiate their outputs."""

import pytest
import torch
from torch import nn

import ksdmin


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


def layers(outputs):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, outputs)
    )


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
        (layers(1), "uses"),
        (layers(3), "uses"),
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
    names = [name for name, _ in net.named_parameters()]
    parameters = [p.detach() for p in net.parameters()]

    def residuals(*pieces):
        called = torch.func.functional_call
        return laplace(lambda x: called(net, dict(zip(names, pieces, strict=True)), (x,)), X)

    expected = torch.autograd.functional.jacobian(residuals, tuple(parameters))
    rows = torch.cat([piece.reshape(len(found.rows), -1) for piece in expected], 1)
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
    problem = ksdmin.from_torch(layers(1).double(), residuals=[(residuals, X)])
    found = problem.jacobian(problem.x0)
    g = problem.value_and_gradient(problem.x0)[1]
    torch.testing.assert_close(found.residuals @ found.rows, g)
    assert problem._blocks[0]._rows.way == "graphs"


@pytest.mark.parametrize("loss", [nn.HuberLoss(), nn.SmoothL1Loss(), nn.L1Loss()])
@pytest.mark.parametrize(("far", "samples_with_rows"), [(0.1, True), (50.0, False)])
def test_rows_that_would_miss_most_of_the_gradient_are_not_used(loss, far, samples_with_rows):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    x = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(30, 2)
    problem = ksdmin.from_torch(net, loss, (x, net(x).detach() + far))
    assert problem.traits.has_jacobian is (samples_with_rows and not isinstance(loss, nn.L1Loss))
