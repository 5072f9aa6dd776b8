"""Small nets of torch that begin the same, whatever ran before."""

from itertools import pairwise

import pytest

import ksdmin


def tanh_net(*widths, seed=0):
    """Linear layers of these widths with tanh between them, in float32."""
    torch = pytest.importorskip("torch")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [
            layer
            for inputs, outputs in pairwise(widths)
            for layer in (torch.nn.Linear(inputs, outputs), torch.nn.Tanh())
        ]
    return torch.nn.Sequential(*layers[:-1])


def fitted_to_a_wave(model, **given):
    """The problem of 400 samples of a wave in the first of four inputs."""
    torch = pytest.importorskip("torch")
    X = torch.randn(400, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    X = X.to(next(model.parameters()).dtype)
    data = X, torch.sin(3 * X[:, :1])
    return ksdmin.from_torch(model, torch.nn.MSELoss(), data, precond="diagonal", **given)
