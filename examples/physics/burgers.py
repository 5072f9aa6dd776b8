"""Burgers' equation u_t + u u_x = nu u_xx, nu = 0.01 / pi: a sine that becomes a shock.

As Kiyani et al. (2025) have it: 4 hidden layers of 20, 10,000 points inside, 200 at both ends of x,
100 at the start, drawn once.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from examples.physics.burgers_reference import cole_hopf
from examples.physics.experiment import Setting, grid, solution_error, uniform
from examples.physics.redrawn import redrawn
from examples.physics.tanh_net import TanhNet

DOMAIN = ((-1.0, 1.0), (0.0, 1.0))
TEST_GRID = 257, 101
SIZES = {False: (10_000, 200, 100), True: (400, 40, 40)}  # inside, both ends, start; of small
MORE = 100_000, 2_000, 1_000
ROUNDS = 6
HIDDEN = {False: (20, 20, 20, 20), True: (12, 12)}
VISCOSITY = {False: 0.01 / math.pi, True: 0.1 / math.pi}  # no shock that 400 points would miss


def burgers(seed: int, small: bool) -> Setting:
    """The experiment."""
    return _setting(SIZES[small], seed, small)


def burgers_of_more(seed: int, small: bool) -> Setting:
    """The same with so many points that some hundreds of them are in the shock."""
    return _setting(SIZES[small] if small else MORE, seed, small)


def burgers_redrawn(seed: int, small: bool) -> Setting:
    """The same with points that are drawn anew, as the paper has them, too."""
    return redrawn(burgers(seed, small), 2 if small else ROUNDS, seed)


def _setting(sizes: tuple[int, int, int], seed: int, small: bool) -> Setting:
    inner, ends, start = sizes
    viscosity = VISCOSITY[small]
    exact = partial(cole_hopf, viscosity)
    return Setting(
        net=TanhNet(2, *HIDDEN[small], 1, seed=seed, xavier=True).double(),
        residuals=[
            (partial(_equation, viscosity), uniform(DOMAIN, inner, seed), 1.0),
            (_at_ends, _end_points(ends, seed), 1.0),
            (_at_start, _start_points(start, seed), 1.0),
        ],
        exact=exact,
        domain=DOMAIN,
        error=solution_error(exact, grid(DOMAIN, *TEST_GRID), relative=True),
    )


def _end_points(count: int, seed: int) -> Tensor:
    """Half of them at x = -1, half at x = 1."""
    t = uniform(((0.0, 1.0),), count, seed)
    side = torch.ones(count, 1, dtype=torch.float64)
    side[: count // 2] = -1
    return torch.cat([side, t], dim=1)


def _start_points(count: int, seed: int) -> Tensor:
    x = uniform(((-1.0, 1.0),), count, seed)
    return torch.cat([x, torch.zeros_like(x)], dim=1)


def _equation(viscosity: float, net: Any, points: Tensor) -> Tensor:
    u, u_x, u_t, u_xx = net.derivatives(points, (2, 1))
    return u_t + u * u_x - viscosity * u_xx


def _at_ends(net: Any, points: Tensor) -> Tensor:
    return net(points)


def _at_start(net: Any, points: Tensor) -> Tensor:
    return net(points) + torch.sin(math.pi * points[:, :1])
