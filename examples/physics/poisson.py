"""The Poisson equation on a square, as in Dangel et al. (NeurIPS 2024, arXiv 2405.15603).

-(u_xx + u_yy) = 2 pi^2 sin(pi x) sin(pi y), u = 0 on the border: 900 points inside and 120 on the
border, drawn once; half of both means of squares.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from examples.physics.experiment import Setting, solution_error, uniform
from examples.physics.tanh_net import TanhNet

SQUARE = ((0.0, 1.0), (0.0, 1.0))
INNER, BORDER = 900, 120
SMALL_INNER, SMALL_BORDER = 200, 40
TEST_POINTS, TEST_SEED = 9_000, 1_000_000


def poisson(hidden: tuple[int, ...], small_hidden: tuple[int, ...]) -> Any:
    """The experiment with a net of these hidden layers."""
    return partial(_setting, hidden, small_hidden)


def _setting(
    hidden: tuple[int, ...], small_hidden: tuple[int, ...], seed: int, small: bool
) -> Setting:
    inner, border = (SMALL_INNER, SMALL_BORDER) if small else (INNER, BORDER)
    test = uniform(SQUARE, TEST_POINTS, TEST_SEED)
    return Setting(
        net=TanhNet(2, *(small_hidden if small else hidden), 1, seed=seed).double(),
        residuals=[
            (_equation, uniform(SQUARE, inner, seed), 0.5),
            (_on_border, border_points(border, seed), 0.5),
        ],
        exact=bump,
        domain=SQUARE,
        error=solution_error(bump, test, relative=False),
    )


def bump(points: Tensor) -> Tensor:
    """The solution."""
    return torch.sin(math.pi * points).prod(dim=1, keepdim=True)


def border_points(count: int, seed: int) -> Tensor:
    """A quarter of them on each side."""
    along = uniform(((0.0, 1.0),), count, seed).reshape(4, -1)
    zero, one = torch.zeros_like(along[0]), torch.ones_like(along[0])
    sides = [(along[0], zero), (along[1], one), (zero, along[2]), (one, along[3])]
    return torch.cat([torch.stack(side, dim=1) for side in sides])


def _equation(net: Any, points: Tensor) -> Tensor:
    *_, u_xx, u_yy = net.derivatives(points, (2, 2))
    return u_xx + u_yy + 2 * math.pi**2 * bump(points)


def _on_border(net: Any, points: Tensor) -> Tensor:
    return net(points)
