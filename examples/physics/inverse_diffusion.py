"""An inverse problem: how well does a rod conduct heat? From temperatures measured with noise.

u_t = k u_xx with an unknown k between 0.01 and 1; the ends are held at 0. The net of x and t is
trained for the equation, in which k is one more parameter, and for the measured values. The error
is that of k; noise keeps every method from the exact value, so the loss is the better comparison.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from examples.physics.experiment import Setting, uniform
from examples.physics.tanh_net import TanhNet

DOMAIN = ((0.0, 1.0), (0.0, 1.0))
CONDUCTIVITY, FIRST_GUESS, BOUNDS = 0.1, 0.5, (0.01, 1.0)
NOISE = 0.01  # of a measured value; the temperatures are up to 1.3
SIZES = {False: (5_000, 500, 200), True: (300, 80, 40)}  # inside, measured, both ends; of small
HIDDEN = {False: (50, 50, 50), True: (12, 12)}
NOISE_SEED = 3_000_000


class Rod(nn.Module):
    """The temperature as a net of x and t, and the conductivity."""

    def __init__(self, *hidden: int, seed: int) -> None:
        super().__init__()
        self.temperature = TanhNet(2, *hidden, 1, seed=seed, xavier=True)
        self.conductivity = nn.Parameter(torch.tensor(FIRST_GUESS))

    def forward(self, points: Tensor) -> Tensor:
        return self.temperature(points)


def inverse_diffusion(seed: int, small: bool) -> Setting:
    """The experiment."""
    inner, measured, ends = SIZES[small]
    where = uniform(DOMAIN, measured, seed + 1)
    generator = torch.Generator().manual_seed(NOISE_SEED + seed)
    noise = torch.randn(measured, 1, generator=generator, dtype=torch.float64)
    return Setting(
        net=Rod(*HIDDEN[small], seed=seed).double(),
        residuals=[
            (_equation, uniform(DOMAIN, inner, seed), 1.0),
            (_misfit, (where, cooling(where) + NOISE * noise), 100.0),
            (_at_ends, _end_points(ends, seed), 100.0),
        ],
        exact=cooling,
        domain=DOMAIN,
        error=conductivity_error,
        bounds={"conductivity": BOUNDS},
    )


def cooling(points: Tensor) -> Tensor:
    """The temperatures: two sines, of which the narrower one is gone sooner."""
    x, t = math.pi * points[:, :1], math.pi**2 * CONDUCTIVITY * points[:, 1:]
    return torch.sin(x) * torch.exp(-t) + 0.5 * torch.sin(3 * x) * torch.exp(-9 * t)


def conductivity_error(rod: Any) -> float:
    """Relative to the true one."""
    return abs(float(rod.conductivity.detach()) / CONDUCTIVITY - 1)


def _end_points(count: int, seed: int) -> Tensor:
    t = uniform(((0.0, 1.0),), count, seed)
    side = (torch.arange(count) % 2).double()[:, None]
    return torch.cat([side, t], dim=1)


def _equation(rod: Any, points: Tensor) -> Tensor:
    *_, u_t, u_xx = rod.temperature.derivatives(points, (2, 1))
    return u_t - rod.conductivity * u_xx


def _misfit(rod: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    points, measured = batch
    return rod(points) - measured


def _at_ends(rod: Any, points: Tensor) -> Tensor:
    return rod(points)
