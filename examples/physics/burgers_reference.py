"""The solution of Burgers' equation from -sin(pi x), twice and by independent ways.

`cole_hopf` is the closed form, a ratio of two integrals, at any points; the experiment is judged by
it. The tests compare it with `solved`, the equation itself by a spectral method.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from examples.physics.spectral import PI, Equation

NODES = 300  # of the quadrature; with 150, and in extended precision, the same to 2e-15
ROUNDING = 37.0  # exp(-ROUNDING) is below the rounding of 1
POINTS_AT_ONCE = 4_000


def cole_hopf(viscosity: float, points: Tensor) -> Tensor:
    """The solution at rows (x, t), by the trapezoidal rule.

    With F(y) = exp(-cos(pi y) / (2 pi viscosity)) and the kernel G of the heat equation,
    u = -(G * (sin(pi y) F)) / (G * F). Both integrands are analytic and vanish at the ends: the
    rule's error falls exponentially with the number of nodes.
    """
    # F varies by exp(1 / (pi viscosity)): farther away exp(-z^2) makes up for that
    reach = math.sqrt(1 / (math.pi * viscosity) + ROUNDING)
    z = torch.linspace(-reach, reach, NODES, dtype=points.dtype, device=points.device)
    pieces = [_cole_hopf(viscosity, piece, z) for piece in points.split(POINTS_AT_ONCE)]
    return torch.cat(pieces)


def _cole_hopf(viscosity: float, points: Tensor, z: Tensor) -> Tensor:
    x, t = points[:, :1], points[:, 1:]
    y = math.pi * (x - 2 * torch.sqrt(viscosity * t) * z)
    exponents = -torch.cos(y) / (2 * math.pi * viscosity) - z * z
    weights = torch.softmax(exponents, dim=1)
    return -(weights * torch.sin(y)).sum(dim=1, keepdim=True)


def solved(viscosity: float, *, points: int, step: float) -> Equation:
    """The same as an equation that a spectral method solves."""
    return Equation(1.0, (viscosity,), lambda x: -np.sin(PI * x), -1.0, 2.0, points, step)
