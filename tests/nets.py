"""Small nets of torch that begin the same, whatever ran before."""

from itertools import pairwise

import pytest


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
