"""How often from_torch calls a model before it returns: a large one takes long for each call."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import ksdmin
from tests.adapters.torch.zoo import attentive, recurrent, u_net

N, MOST_CALLS = 40, 8


class Counted(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net, self.calls, self.samples = net, 0, 0

    def forward(self, x):
        self.calls += 1
        self.samples += len(x)
        return self.net(x)


def lstm():
    return recurrent(nn.LSTM(5, 7, batch_first=True), 7, 2)


def attention():
    return attentive(8, 2, 16, 2, dropout=0.1)


def mlp():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def convolution():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))


def normalised():
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 2))


CASES = {
    "linear": (lambda: nn.Linear(4, 2), (4,)),
    "mlp": (mlp, (4,)),
    "convolution": (convolution, (1, 8, 8)),
    "lstm": (lstm, (6, 5)),
    "attention": (lambda: attention().eval(), (5, 8)),
    "dropout": (attention, (5, 8)),
    "batch norm": (normalised, (4,)),
    "images": (lambda: u_net(4, 1), (1, 16, 16)),
}


def made(name, **arguments):
    net, shape = CASES[name]
    torch.manual_seed(0)
    counted, X = Counted(net()), torch.randn(N, *shape)
    y = torch.randn(N, *shape) if name == "images" else torch.randn(N, 2)
    return counted, ksdmin.from_torch(counted, nn.MSELoss(), (X, y), **arguments)


@pytest.mark.parametrize("name", CASES)
def test_few_calls_of_few_samples(name):
    counted, _ = made(name)
    assert counted.calls <= MOST_CALLS
    assert counted.samples <= 6 * MOST_CALLS


def test_what_is_found_is_what_many_calls_would_show():
    """What each of the calls was for."""
    found = {name: made(name)[1].traits for name in CASES}
    assert [name for name, traits in found.items() if not traits.nonlinear] == ["linear"]
    with_rows = {"mlp", "convolution", "lstm", "attention", "images"}
    assert {name for name, traits in found.items() if traits.has_jacobian} == with_rows
    assert found["linear"].has_matrix
    assert all(traits.has_factors for name, traits in found.items() if name != "linear")


@pytest.mark.parametrize("name", ["mlp", "convolution", "lstm"])
def test_blocks_of_residuals(name):
    net, shape = CASES[name]
    torch.manual_seed(0)
    counted, X = Counted(net()), torch.randn(N, *shape)
    blocks = [(lambda model, x: model(x) - 1, X), (lambda model, x: 2 * model(x), X[:20])]
    ksdmin.from_torch(counted, residuals=blocks)
    assert counted.calls <= 2 * (MOST_CALLS + 2)  # which have a diagonal


class Largest(TorchDispatchMode):
    """Notes how many entries the largest tensor has that is computed."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and not func.is_view:
            self.entries = max(self.entries, out.numel())
        return out


def test_no_whole_jacobian_is_computed():
    """It has a row for each pixel: hundreds of backward passes."""
    with Largest() as largest:
        problem = made("images")[1]
    assert problem.traits.has_jacobian
    assert problem.traits.rows_per_sample == 256
    assert largest.entries < 256 * problem.x0.numel()
