"""Models that differentiate in their forward pass: what is forgotten. (What works: tests/zoo.)"""

import pytest
import torch
from torch import nn

import ksdmin

X = torch.linspace(-1, 1, 40, dtype=torch.float64)[:, None]
TARGET = -(torch.pi**2) * torch.sin(torch.pi * X)


# Said by torch itself, of its own forward-mode differentiation.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")


def without_graph(model, x):
    u = model(x.requires_grad_())
    return u - torch.autograd.grad(u.sum(), x)[0]


def without_flag(model, x):
    return torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]


@pytest.mark.parametrize(
    ("residual", "hint"), [(without_graph, "create_graph=True"), (without_flag, "requires_grad_()")]
)
def test_errors_of_torch_come_with_a_hint(residual, hint):
    net = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    with pytest.raises(RuntimeError) as raised:
        ksdmin.from_torch(net, residuals=[(residual, torch.rand(9, 1), 1.0)])
    assert any(hint in note for note in raised.value.__notes__)


class Retained(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.u = nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1))

    def forward(self, x):
        x = x.clone().requires_grad_()
        u = self.u(x)
        return torch.autograd.grad(u.sum(), x, retain_graph=True)[0] + u


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_derivative_that_is_taken_for_a_constant_is_refused(dtype):
    model, x, y = Retained().to(dtype), X.to(dtype), TARGET.to(dtype)
    with pytest.raises(ValueError, match=r"gradient of Retained is not .* create_graph=True"):
        ksdmin.from_torch(model, nn.MSELoss(), (x, y))
    with pytest.raises(ValueError, match=r"is not that of its values") as caught:
        ksdmin.from_torch(model, residuals=[(lambda model, x: model(x), x)])
    assert "in block 0 of residuals=" in caught.value.__notes__


def test_a_module_is_no_function_to_minimise():
    with pytest.raises(TypeError, match=r"fun is a torch module \(Linear\), not its loss"):
        ksdmin.minimize(torch.nn.Linear(2, 1))
