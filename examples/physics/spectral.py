"""Reference solutions of periodic equations u_t + a u u_x = L u, by a spectral method.

Fourier in x, products without aliasing by the 2/3 rule; in t the fourth-order exponential
time-differencing Runge-Kutta method of Cox and Matthews, with the coefficients as means over a
circle (Kassam and Trefethen, 2005): L is integrated exactly. It is done in extended precision, as
the rounding of exp(L step) is taken to a power of tens of thousands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from scipy import fft
from torch import Tensor

CIRCLE = 32  # points of the means
Real, Complex = np.longdouble, np.clongdouble
PI = Real("3.14159265358979323846264338327950288")


@dataclass(frozen=True)
class Equation:
    """An equation, and how finely it is solved.

    Attributes
    ----------
    advection : float
        a.
    linear : tuple of float
        Those of the derivatives of u in L, from the second one on.
    start : callable
        u at t = 0, of numpy's x.
    left, length : float
        Where x begins, and the period.
    points, step : int, float
        In x and in t.
    """

    advection: float
    linear: tuple[float, ...]
    start: Callable[[Any], Any]
    left: float
    length: float
    points: int
    step: float

    @property
    def waves(self) -> Any:
        """The wave numbers."""
        return 2 * PI / Real(self.length) * np.arange(self.points // 2 + 1, dtype=Real)

    @property
    def symbol(self) -> Any:
        """L, as a factor of each wave."""
        orders = enumerate(self.linear, start=2)
        return sum(Real(c) * (1j * self.waves) ** order for order, c in orders)

    def __call__(self, points: Tensor) -> Tensor:
        """The solution at rows (x, t), by trigonometric interpolation in x."""
        at, times = np.asarray(points[:, 0].cpu(), float), np.asarray(points[:, 1].cpu(), float)
        known, which = np.unique(times, return_inverse=True)
        waves = np.asarray(self.waves, float)
        weights = np.full(len(waves), 2.0 / self.points)
        weights[[0, -1]] /= 2
        found = np.empty(len(at))
        for i, transformed in enumerate(transforms(self, tuple(known))):
            here = which == i
            turned = np.exp(1j * np.multiply.outer(at[here] - self.left, waves))
            found[here] = (turned * (weights * transformed.astype(complex))).real.sum(axis=1)
        return torch.as_tensor(found, device=points.device)[:, None]


@lru_cache(maxsize=4)
def _known(equation: Equation) -> dict[float, Any]:
    """The transforms of the solution by time, as far as it has been computed."""
    x = Real(equation.left) + Real(equation.length) * (
        np.arange(equation.points, dtype=Real) / equation.points
    )
    return {0.0: fft.rfft(equation.start(x))}


def transforms(equation: Equation, times: tuple[float, ...]) -> list[Any]:
    """The real Fourier transforms of the solution at some times, in their order."""
    known = _known(equation)
    for time in times:
        if time not in known:
            before = max(t for t in known if t < time)
            length = Real(time) - Real(before)
            count = max(1, math.ceil(float(length) / equation.step - 1e-6))
            known[time] = _advanced(equation, known[before], length / count, count)
    return [known[time] for time in times]


def _advanced(equation: Equation, u: Any, step: Any, count: int) -> Any:
    n, L = equation.points, equation.symbol.astype(Complex)
    kept = np.arange(len(L)) < n / 3
    weights = (-0.5j * Real(equation.advection) * equation.waves * kept).astype(Complex)

    def nonlinear(u: Any) -> Any:
        """-a (u^2 / 2)_x."""
        return weights * fft.rfft(fft.irfft(u, n) ** 2)

    circle = np.exp(2j * PI * (np.arange(1, CIRCLE + 1, dtype=Real) - Real(0.5)) / CIRCLE)
    z = step * L[:, None] + circle
    e = np.exp(z)
    half_way = step * ((np.exp(z / 2) - 1) / z).mean(axis=1)
    first = step * ((-4 - z + e * (4 - 3 * z + z * z)) / z**3).mean(axis=1)
    middle = 2 * step * ((2 + z + e * (z - 2)) / z**3).mean(axis=1)
    last = step * ((-4 - 3 * z - z * z + e * (4 - z)) / z**3).mean(axis=1)
    whole, half = np.exp(step * L), np.exp(step * L / 2)
    for _ in range(count):
        N = nonlinear(u)
        a = half * u + half_way * N
        N_a = nonlinear(a)
        N_b = nonlinear(half * u + half_way * N_a)
        N_c = nonlinear(half * a + half_way * (2 * N_b - N))
        u = whole * u + first * N + middle * (N_a + N_b) + last * N_c
    return u
