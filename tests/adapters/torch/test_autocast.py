"""torch.autocast, in a model and around a call: precision= is its place."""

import pytest
import torch
from torch import nn

import ksdmin
import ksdmin.torch

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


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


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
    expected = ksdmin.from_torch(net(), nn.MSELoss(), DATA)
    with torch.autocast("cpu", torch.bfloat16):
        problem = ksdmin.from_torch(net(), nn.MSELoss(), DATA)
        value = problem.value(problem.x0)
    assert value == expected.value(expected.x0)
    found, right = (ksdmin.minimize(p, rng=0, options={"maxiter": 3}) for p in (problem, expected))
    assert torch.equal(found.x, right.x)


def test_around_a_run():
    problem = ksdmin.from_torch(net(), nn.MSELoss(), DATA)
    words = "torch.autocast is on.*outside of it, and pass precision='bfloat16'"
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(RuntimeError, match=words):
        ksdmin.minimize(problem)
    with torch.autocast("cuda", torch.bfloat16, enabled=False):
        ksdmin.minimize(problem, options={"maxiter": 1})


def test_the_optimizer():
    model = net()
    optimizer = ksdmin.torch.KSD(model.parameters())

    def closure():
        with torch.autocast("cpu", torch.bfloat16):
            return (model(X).float() - DATA[1]).square().mean()

    assert optimizer.step(closure) > 0
    words = "torch.autocast is on.*put autocast into the closure"
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(RuntimeError, match=words):
        optimizer.step(closure)
