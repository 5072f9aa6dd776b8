"""Poisson's equation in 5 and 10 dimensions, and the heat equation in 4 and time.

As Guzman-Cordero et al. (NeurIPS 2025, arXiv 2505.12149) have them: cubes [0, 1]^d, half of both
means of squares, and the absolute root mean square of the error at points inside. They draw 3,000
points inside and 500 on the border for each step, which is as many as a run has time for; here they
are 100,000 and 20,000, drawn once, of which KSD takes as many as it needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from examples.physics.experiment import Setting, Solution, solution_error, uniform
from examples.physics.tanh_net import TanhNet

SIZES = {False: (100_000, 20_000), True: (400, 100)}  # inside, border; of small
NARROW = {False: (64, 64, 48, 48), True: (12, 12)}
WIDE = {False: (256, 256, 128, 128), True: (12, 12)}
TEST_POINTS, TEST_SEED = 30_000, 1_000_000
MIXED_SCALE = 1.34  # the root mean square of the mixed products, in theirs and so in ours


def poisson_5d(seed: int, small: bool) -> Setting:
    """The sum of five cosines."""
    return _poisson(5, cosines, _cosines_force, NARROW[small], seed, small)


def poisson_10d(seed: int, small: bool) -> Setting:
    """The mixed products of E and Yu's deep Ritz method, which are harmonic."""
    return _poisson(10, mixed_products, _no_force, WIDE[small], seed, small)


def heat(seed: int, small: bool) -> Setting:
    """u_t = (u_xx + ...) / 4; t is the first coordinate."""
    inner, border = SIZES[small]
    on_border = torch.cat([_at_any_time(border // 2, seed), _at_start(border // 2, seed)])
    return _setting(5, cooling, _heat_equation, on_border, WIDE[small], seed, inner)


def _poisson(
    dimensions: int, exact: Solution, force: Solution, hidden: Any, seed: int, small: bool
) -> Setting:
    inner, border = SIZES[small]
    on_border, equation = _faces(dimensions, border, seed), partial(_poisson_equation, force)
    return _setting(dimensions, exact, equation, on_border, hidden, seed, inner)


def _setting(
    dimensions: int,
    exact: Solution,
    equation: Any,
    on_border: Tensor,
    hidden: Sequence[int],
    seed: int,
    inner: int,
) -> Setting:
    cube = ((0.0, 1.0),) * dimensions
    test = uniform(cube, TEST_POINTS, TEST_SEED)
    return Setting(
        net=TanhNet(dimensions, *hidden, 1, seed=seed).double(),
        residuals=[
            (equation, uniform(cube, inner, seed), 0.5),
            (_misfit, (on_border, exact(on_border)), 0.5),
        ],
        exact=exact,
        domain=cube,
        error=solution_error(exact, test, relative=False),
    )


def _faces(dimensions: int, count: int, seed: int) -> Tensor:
    """Points on the faces of the cube, any of them as likely as the others."""
    points = uniform(((0.0, 1.0),) * dimensions, count, seed + 1)
    generator = torch.Generator().manual_seed(seed + 2)
    axis = torch.randint(dimensions, (count, 1), generator=generator)
    side = torch.randint(2, (count, 1), generator=generator)
    return points.scatter(1, axis, side.double())


def _at_any_time(count: int, seed: int) -> Tensor:
    return torch.cat([uniform(((0.0, 1.0),), count, seed + 3), _faces(4, count, seed)], dim=1)


def _at_start(count: int, seed: int) -> Tensor:
    x = uniform(((0.0, 1.0),) * 4, count, seed + 4)
    return torch.cat([torch.zeros_like(x[:, :1]), x], dim=1)


def cosines(points: Tensor) -> Tensor:
    """The solution in five dimensions."""
    return torch.cos(math.pi * points).sum(dim=1, keepdim=True)


def mixed_products(points: Tensor) -> Tensor:
    """That in ten: x1 x2 + x3 x4 + ..., scaled."""
    return (points[:, ::2] * points[:, 1::2]).sum(dim=1, keepdim=True) / MIXED_SCALE


def cooling(points: Tensor) -> Tensor:
    """That of the heat equation."""
    return torch.exp(-points[:, :1]) * torch.sin(2 * points[:, 1:]).sum(dim=1, keepdim=True)


def _cosines_force(points: Tensor) -> Tensor:
    return math.pi**2 * cosines(points)


def _no_force(points: Tensor) -> Tensor:
    return torch.zeros_like(points[:, :1])


def _poisson_equation(force: Solution, net: Any, points: Tensor) -> Tensor:
    _, laplacian = net.with_laplacian(points, range(points.shape[1]))
    return laplacian + force(points)


def _heat_equation(net: Any, points: Tensor) -> Tensor:
    slopes, laplacian = net.with_laplacian(points, range(1, points.shape[1]))
    return slopes[0] - laplacian / 4


def _misfit(net: Any, data: tuple[Tensor, Tensor]) -> Tensor:
    points, values = data
    return net(points) - values
