"""Pieces of the nets: blocks with skip connections, recurrence, patches, attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

SIDE = 28  # of the images
GROUPS = 8  # of a group norm


class Skip(nn.Module):
    """x + branch(x)."""

    def __init__(self, *branch: nn.Module) -> None:
        super().__init__()
        self.branch = nn.Sequential(*branch)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


def residual_block(channels: int) -> Skip:
    """Two convolutions with group norm."""
    layers = [
        (nn.GroupNorm(GROUPS, channels), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1))
        for _ in range(2)
    ]
    return Skip(*(layer for group in layers for layer in group))


class LastState(nn.Module):
    """A recurrent net that reads an image row by row; its outputs at the end."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(SIDE, units, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.recurrent(x.unflatten(1, (SIDE, SIDE)))[0][:, -1]


class Patches(nn.Module):
    """An image as a sequence of embedded patches, with their places."""

    def __init__(self, width: int, patch: int) -> None:
        super().__init__()
        self._patch = patch
        self.embed = nn.Linear(patch**2, width)
        self.places = nn.Parameter(0.02 * torch.randn((SIDE // patch) ** 2, width))

    def forward(self, x: Tensor) -> Tensor:
        rows = SIDE // self._patch
        grid = x.unflatten(1, (rows, self._patch, rows, self._patch)).transpose(2, 3)
        return self.embed(grid.flatten(3).flatten(1, 2)) + self.places


class Mean(nn.Module):
    """Over the places of a sequence."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


class CausalAttention(nn.Module):
    """Each place of a sequence looks at those before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        of_heads = self.into(x).unflatten(-1, (3, self._heads, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = of_heads.unbind(0)
        seen = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(seen.transpose(1, 2).flatten(2))


class Characters(nn.Module):
    """Embedded characters, with their places."""

    def __init__(self, kinds: int, length: int, width: int) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(kinds, width), nn.Embedding(length, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.embed(x) + self.places(torch.arange(x.shape[1], device=x.device))


class KindsSecond(nn.Module):
    """(samples, places, kinds) -> (samples, kinds, places), as a cross-entropy takes them."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


class Scale(nn.Module):
    """One scale of a U-net: half the resolution goes through `inner`, and all of it around it."""

    def __init__(self, channels: int, deeper: int, inner: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            *(nn.Conv2d(channels, deeper, 3, stride=2, padding=1), nn.ReLU()),
            inner,
            nn.ConvTranspose2d(deeper, channels, 2, stride=2),
        )
        self.join = nn.Sequential(nn.Conv2d(2 * channels, channels, 3, padding=1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.join(torch.cat([x, self.inner(x)], dim=1))
