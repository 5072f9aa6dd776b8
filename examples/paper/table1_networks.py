"""The networks of Table 1, and where their weights start."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

INCOMING = 15  # weights of a unit that do not start at zero


def network(sizes: tuple[int, ...], code: int | None = None) -> nn.Sequential:
    """Logistic units between `sizes`; layer `code` and the last one are linear.

    The last layer's logistic function or softmax is part of the loss.
    """
    layers: list[nn.Module] = []
    for layer, (fan_in, fan_out) in enumerate(pairwise(sizes), start=1):
        layers.append(nn.Linear(fan_in, fan_out))
        if layer not in (code, len(sizes) - 1):
            layers.append(nn.Sigmoid())
    return nn.Sequential(*layers)


def auto_encoder(inputs: int, hidden: tuple[int, ...]) -> nn.Sequential:
    """Down to a linear code, the last of `hidden`, and back again."""
    down = (inputs, *hidden)
    return network(down + down[-2::-1], code=len(hidden))


def linears(net: nn.Sequential) -> list[nn.Linear]:
    """The layers that have weights."""
    return [layer for layer in net if isinstance(layer, nn.Linear)]


@torch.no_grad()
def initialise_sparsely(net: nn.Sequential, seed: int) -> None:
    """Martens' start: 15 incoming weights of a unit from N(0, 1), the others and biases zero."""
    generator = torch.Generator().manual_seed(seed)
    for layer in linears(net):
        fan_out, fan_in = layer.weight.shape
        chosen = torch.rand(fan_out, fan_in, generator=generator).argsort(dim=1)[:, :INCOMING]
        drawn = torch.randn(chosen.shape, generator=generator)
        layer.weight.zero_().scatter_(1, chosen, drawn)
        layer.bias.zero_()
