"""Convection, reaction and wave of Rathore et al. (ICML 2024, arXiv 2402.01868).

A net of x and t has 10,000 residuals of the equation, drawn from the inner points of a grid of 257
by 101, and all of the grid's points at t = 0 and at both ends of x for the conditions there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from examples.physics.experiment import Box, Setting, Solution, grid, solution_error
from examples.physics.tanh_net import TanhNet

TEST_GRID = 129, 101
CIRCLE = ((0.0, 2 * math.pi), (0.0, 1.0))
SQUARE = ((0.0, 1.0), (0.0, 1.0))


@dataclass(frozen=True)
class Size:
    """Of the grid, of the residuals that are drawn, of the net's hidden layers."""

    x: int
    t: int
    drawn: int
    hidden: tuple[int, ...]


FULL, SMALL = Size(257, 101, 10_000, (200, 200, 200)), Size(41, 21, 300, (16, 16))


@dataclass(frozen=True)
class Points:
    """Where the residuals are taken; the points of an axis' two ends belong together."""

    inner: Tensor
    start: Tensor
    ends: tuple[Tensor, Tensor]


def points_of(box: Box, size: Size, seed: int) -> Points:
    """The paper's points in a box."""
    points = grid(box, size.x, size.t).reshape(size.x, size.t, 2)
    inner = points[1:-1, 1:].reshape(-1, 2)
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randperm(len(inner), generator=generator)[: size.drawn]
    return Points(inner[drawn], points[:, 0], (points[0], points[-1]))


def setting(
    blocks: Callable[[Points], list[Any]], exact: Solution, box: Box, seed: int, small: bool
) -> Setting:
    """The three equations differ in their residuals and their solution only."""
    size = SMALL if small else FULL
    return Setting(
        net=TanhNet(2, *size.hidden, 1, seed=seed, xavier=True).double(),
        residuals=blocks(points_of(box, size, seed)),
        exact=exact,
        domain=box,
        error=solution_error(exact, grid(box, *TEST_GRID), relative=True),
    )


def periodic(net: Any, ends: tuple[Tensor, Tensor]) -> Tensor:
    """u is the same at both ends."""
    return net(ends[1]) - net(ends[0])


def convection(seed: int, small: bool) -> Setting:
    """u_t + 40 u_x = 0: a sine that goes round; slower, 5, where it is small."""
    speed = 5.0 if small else 40.0

    def blocks(points: Points) -> list[Any]:
        equation, start = partial(_convected, speed), _sine_at_start
        return [
            (equation, points.inner, 1.0),
            (start, points.start, 1.0),
            (periodic, points.ends, 1.0),
        ]

    return setting(blocks, partial(convected_sine, speed), CIRCLE, seed, small)


def convected_sine(speed: float, points: Tensor) -> Tensor:
    """The solution of the convection."""
    return torch.sin(points[:, :1] - speed * points[:, 1:])


def _convected(speed: float, net: Any, points: Tensor) -> Tensor:
    _, u_x, u_t = net.derivatives(points, (1, 1))
    return u_t + speed * u_x


def _sine_at_start(net: Any, points: Tensor) -> Tensor:
    return net(points) - torch.sin(points[:, :1])


def reaction(seed: int, small: bool) -> Setting:
    """u_t = 5 u (1 - u) from a bell; slower, 2, where it is small."""
    rate = 2.0 if small else 5.0

    def blocks(points: Points) -> list[Any]:
        return [
            (partial(_reacted, rate), points.inner, 1.0),
            (_bell_at_start, points.start, 1.0),
            (periodic, points.ends, 1.0),
        ]

    return setting(blocks, partial(grown_bell, rate), CIRCLE, seed, small)


def grown_bell(rate: float, points: Tensor) -> Tensor:
    """The solution of the reaction."""
    grown = bell(points) * torch.exp(rate * points[:, 1:])
    return grown / (grown + 1 - bell(points))


def bell(points: Tensor) -> Tensor:
    """What the reaction starts from."""
    return torch.exp(-(((points[:, :1] - math.pi) / (math.pi / 4)) ** 2) / 2)


def _reacted(rate: float, net: Any, points: Tensor) -> Tensor:
    u, u_t = net.derivatives(points, (0, 1))
    return u_t - rate * u * (1 - u)


def _bell_at_start(net: Any, points: Tensor) -> Tensor:
    return net(points) - bell(points)


def wave(seed: int, small: bool) -> Setting:
    """u_tt = 4 u_xx, of two sines at rest; their waves have 1 and 5 halves, or 1 and 2 if small."""
    halves = 2 if small else 5

    def blocks(points: Points) -> list[Any]:
        start = partial(_at_rest, halves)
        # A block is the mean over its columns, too: with weight 2 it is the sum of two means
        return [
            (_waved, points.inner, 1.0),
            (start, points.start, 2.0),
            (_held, points.ends, 2.0),
        ]

    return setting(blocks, partial(two_waves, halves), SQUARE, seed, small)


def two_waves(halves: int, points: Tensor) -> Tensor:
    """The solution of the wave equation."""
    x, t = math.pi * points[:, :1], 2 * math.pi * points[:, 1:]
    slow = torch.sin(x) * torch.cos(t)
    return slow + 0.5 * torch.sin(halves * x) * torch.cos(halves * t)


def _waved(net: Any, points: Tensor) -> Tensor:
    *_, u_xx, u_tt = net.derivatives(points, (2, 2))
    return u_tt - 4 * u_xx


def _at_rest(halves: int, net: Any, points: Tensor) -> Tensor:
    u, u_t = net.derivatives(points, (0, 1))
    return torch.cat([u - two_waves(halves, points), u_t], dim=1)


def _held(net: Any, ends: tuple[Tensor, Tensor]) -> Tensor:
    return torch.cat([net(ends[0]), net(ends[1])], dim=1)
