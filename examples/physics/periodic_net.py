"""A net that is periodic in x by its construction, with sines, and its derivatives.

Its inputs are the cosine and the sine of x, turned to one period, and t. Derivatives along x, up to
the fourth, go from layer to layer with the value (Taylor mode), as in `tanh_net`.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn


class PeriodicNet(nn.Sequential):
    """Linear layers with sines between them.

    Parameters
    ----------
    left, length : float
        Where x begins, and the period.
    times : tuple of float
        Between which it is used; t is scaled to [-1, 1].
    hidden : int
        The widths of the hidden layers.
    seed : int
        Of the start: the weights as in Glorot and Bengio (normal); the biases of the first layer
        from [-1, 1], the others 0.
    """

    def __init__(
        self, left: float, length: float, times: tuple[float, float], *hidden: int, seed: int
    ) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            linear = [nn.Linear(a, b) for a, b in pairwise((3, *hidden, 1))]
            for layer in linear:
                nn.init.xavier_normal_(layer.weight)
                nn.init.zeros_(layer.bias)
            nn.init.uniform_(linear[0].bias, -1, 1)
        super().__init__(*linear)
        self._left, self._wave = left, 2 * math.pi / length
        self._first, self._rate = times[0], 2 / (times[1] - times[0])

    def forward(self, points: Tensor) -> Tensor:
        return self.along_x(points, 0)[0]

    def along_x(self, points: Tensor, order: int) -> tuple[Tensor, ...]:
        """u_t, u, u_x and so on up to this derivative, each a column with one row a point.

        Without derivatives, u alone.
        """
        streams = self._inputs(points, order)
        for number, layer in enumerate(self):
            if number:
                streams = _sine(streams, order)
            product = streams @ layer.weight.T
            streams = torch.cat([product[:1] + layer.bias, product[1:]])
        u, *slopes, u_t = streams
        return (u_t, u, *slopes) if order else (u,)

    def _inputs(self, points: Tensor, order: int) -> Tensor:
        """The value, the derivatives in x, and that in t, of (cos, sin, scaled t)."""
        angle = self._wave * (points[:, :1] - self._left)
        t = self._rate * (points[:, 1:] - self._first) - 1
        zero, rate = torch.zeros_like(t), torch.full_like(t, self._rate)
        streams = [torch.cat([torch.cos(angle), torch.sin(angle), t], dim=1)]
        for k in range(1, order + 1):
            turned = angle + k * math.pi / 2
            slopes = [self._wave**k * each for each in (torch.cos(turned), torch.sin(turned))]
            streams.append(torch.cat([*slopes, zero], dim=1))
        return torch.stack([*streams, torch.cat([zero, zero, rate], dim=1)])


def _sine(streams: Tensor, order: int) -> Tensor:
    """Of all streams, by Faa di Bruno's formula."""
    value, *g, along_t = streams
    s, c = torch.sin(value), torch.cos(value)
    found = [s]
    if order > 0:
        found.append(c * g[0])
    if order > 1:
        found.append(c * g[1] - s * g[0] ** 2)
    if order > 2:
        found.append(c * (g[2] - g[0] ** 3) - 3 * s * g[0] * g[1])
    if order > 3:
        bent = g[0] ** 4 - 4 * g[0] * g[2] - 3 * g[1] ** 2
        found.append(s * bent + c * (g[3] - 6 * g[0] ** 2 * g[1]))
    return torch.stack([*found, c * along_t])
