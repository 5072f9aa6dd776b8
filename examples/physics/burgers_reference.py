"""The solution of Burgers' equation from -sin(pi x), twice and by independent ways.

`cole_hopf` is the closed form, a ratio of two integrals, at any points; the experiment is judged by
it. `spectral` solves the equation itself; the tests compare the two.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

NODES = 300  # of the quadrature; with 150 the results are the same to 1e-12
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


def spectral(viscosity: float, times: list[float], *, points: int, step: float) -> np.ndarray:
    """The solution at `times` on `points` of [-1, 1), a row a time.

    Fourier in x, as the solution is periodic; the diffusion exactly and the rest by Runge-Kutta's
    method of order 4 (integrating factor), products without aliasing by the 2/3 rule.
    """
    x = -1 + 2 * np.arange(points) / points
    waves = math.pi * np.arange(points // 2 + 1)
    kept = waves < math.pi * points / 3
    u, now, rows = np.fft.rfft(-np.sin(math.pi * x)), 0.0, []
    for time in times:
        count = max(1, round((time - now) / step))
        u = _advance(u, viscosity, waves, kept, (time - now) / count, count)
        now = time
        rows.append(np.fft.irfft(u, points))
    return np.array(rows)


def _advance(
    u: np.ndarray, viscosity: float, waves: np.ndarray, kept: np.ndarray, step: float, count: int
) -> np.ndarray:
    half = np.exp(-viscosity * waves**2 * step / 2)
    points = 2 * (len(waves) - 1)

    def slope(u: np.ndarray) -> np.ndarray:
        """Of -(u^2 / 2)_x."""
        return -0.5j * waves * kept * np.fft.rfft(np.fft.irfft(u, points) ** 2)

    for _ in range(count):
        a = step * slope(u)
        b = step * slope(half * (u + a / 2))
        c = step * slope(half * u + b / 2)
        d = step * slope(half * (half * u + c))
        u = half * (half * (u + a / 6) + (b + c) / 3) + d / 6
    return u
