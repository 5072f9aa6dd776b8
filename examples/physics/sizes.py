"""Two equations with more points, and with wider nets: whoever gives more must not get less.

A Helmholtz-like equation u_xx + u_yy + u = f, and one of third order, u_t + u u_x + 0.02 u_xxx = f,
on squares. Both have known solutions; values are given on the border, with weight 100. The
residuals are written as most people write them, with ``torch.autograd.grad``.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from examples.physics.experiment import Setting, Solution, solution_error, uniform
from examples.physics.tanh_net import TanhNet

SQUARE = ((-1.0, 1.0), (-1.0, 1.0))
STRIP = ((-1.0, 1.0), (0.0, 1.0))
WIDTH, DEPTH, SMALL_HIDDEN = 64, 4, (12, 12)
POINTS, SMALL_POINTS = 8192, 500
WEIGHT = 100.0  # of the border
TEST_POINTS, TEST_SEED = 20_000, 1_000_000
DISPERSION = 0.02


def helmholtz(points: int) -> Any:
    """The first equation, with so many points inside."""
    return partial(_helmholtz, points)


def dispersive(width: int) -> Any:
    """The second one, with a net whose four hidden layers have this width."""
    return partial(_dispersive, width)


def _helmholtz(points: int, seed: int, small: bool) -> Setting:
    count, hidden = (SMALL_POINTS, SMALL_HIDDEN) if small else (points, (WIDTH,) * DEPTH)
    inner = uniform(SQUARE, count, seed)
    sides = [(0, -1.0), (0, 1.0), (1, -1.0), (1, 1.0)]
    return _setting(SQUARE, hidden, seed, waves, _helmholtz_equation, inner, sides)


def _dispersive(width: int, seed: int, small: bool) -> Setting:
    count, hidden = (SMALL_POINTS, SMALL_HIDDEN) if small else (POINTS, (width,) * DEPTH)
    inner = uniform(STRIP, count, seed)
    force = dispersive_operator(packet, inner).detach()
    data = torch.cat([inner, force], dim=1)
    sides = [(1, 0.0), (0, -1.0), (0, 1.0)]
    return _setting(STRIP, hidden, seed, packet, _dispersive_equation, data, sides)


def _setting(
    domain: Any,
    hidden: tuple[int, ...],
    seed: int,
    exact: Solution,
    equation: Any,
    inner: Tensor,
    sides: list[tuple[int, float]],
) -> Setting:
    each = max(64, math.isqrt(len(inner)))
    border = uniform(domain, each * len(sides), seed + 1).reshape(len(sides), each, 2)
    for points, (axis, value) in zip(border, sides, strict=True):
        points[:, axis] = value
    test = uniform(domain, TEST_POINTS, TEST_SEED)
    return Setting(
        net=TanhNet(2, *hidden, 1, seed=seed, xavier=True).double(),
        residuals=[
            (equation, inner, 1.0),
            (partial(_on_border, exact), border.reshape(-1, 2), WEIGHT),
        ],
        exact=exact,
        domain=domain,
        error=solution_error(exact, test, relative=True),
    )


def waves(points: Tensor) -> Tensor:
    """The solution of the first equation."""
    x, y = points[:, :1], points[:, 1:]
    return torch.sin(math.pi * x) * torch.sin(4 * math.pi * y) + x * y**2


def packet(points: Tensor) -> Tensor:
    """That of the second one."""
    x, t = points[:, :1], points[:, 1:]
    return torch.sin(math.pi * (x - t)) * torch.exp(-(x**2) / 2)


def derivative(u: Tensor, points: Tensor) -> Tensor:
    """That of each point's value in its inputs."""
    return torch.autograd.grad(u.sum(), points, create_graph=True)[0]


def _helmholtz_equation(net: Any, points: Tensor) -> Tensor:
    points = points.detach().requires_grad_()
    u = net(points)
    slopes = derivative(u, points)
    bends = [derivative(slopes[:, axis], points)[:, axis : axis + 1] for axis in range(2)]
    x, y = points[:, :1], points[:, 1:]
    product = torch.sin(math.pi * x) * torch.sin(4 * math.pi * y)
    force = (1 - 17 * math.pi**2) * product + x * (2 + y**2)
    return bends[0] + bends[1] + u - force


def dispersive_operator(function: Any, points: Tensor) -> Tensor:
    """u_t + u u_x + 0.02 u_xxx of a function of points."""
    points = points.detach().requires_grad_()
    u = function(points)
    slopes = derivative(u, points)
    u_x, u_t = slopes[:, :1], slopes[:, 1:]
    u_xxx = derivative(derivative(u_x, points)[:, :1], points)[:, :1]
    return u_t + u * u_x + DISPERSION * u_xxx


def _dispersive_equation(net: Any, data: Tensor) -> Tensor:
    """`data` has the points, and the force there."""
    return dispersive_operator(net, data[:, :2]) - data[:, 2:]


def _on_border(exact: Solution, net: Any, points: Tensor) -> Tensor:
    return net(points) - exact(points)
