"""The other problems of Moré, Garbow and Hillstrom as sums of squares, from three starts each.

Nothing was tuned on them. Half of them, every second one, was set aside until the end even so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from examples.benchmarks.least_squares_suite.fits import Fit, by_complex_step
from examples.benchmarks.least_squares_suite.more_garbow_hillstrom import numbers

GAUSS = numbers("9 44 175 540 1295 2420 3521 3989 3521 2420 1295 540 175 44 9") / 1e4


def beale(x: Any) -> Any:
    return np.array([y - x[0] * (1 - x[1] ** i) for i, y in ((1, 1.5), (2, 2.25), (3, 2.625))])


def powell_badly_scaled(x: Any) -> Any:
    return np.array([1e4 * x[0] * x[1] - 1, np.exp(-x[0]) + np.exp(-x[1]) - 1.0001])


def brown_badly_scaled(x: Any) -> Any:
    return np.array([x[0] - 1e6, x[1] - 2e-6, x[0] * x[1] - 2])


def gaussian(x: Any) -> Any:
    t = (8 - np.arange(1, 16)) / 2
    return x[0] * np.exp(-x[1] * (t - x[2]) ** 2 / 2) - GAUSS


def gulf(x: Any) -> Any:
    t = np.arange(1, 100) / 100
    y = 25 + (-50 * np.log(t)) ** (2 / 3)
    distance = np.where((y - x[1]).real < 0, x[1] - y, y - x[1])
    return np.exp(-(distance ** x[2]) / x[0]) - t


def wood(x: Any) -> Any:
    a, b = 10 * (x[1] - x[0] ** 2), 90**0.5 * (x[3] - x[2] ** 2)
    c, d = 10**0.5 * (x[1] + x[3] - 2), (x[1] - x[3]) / 10**0.5
    return np.array([a, 1 - x[0], b, 1 - x[2], c, d])


def biggs_exp6(x: Any) -> Any:
    t = np.arange(1, 14) / 10
    y = np.exp(-t) - 5 * np.exp(-10 * t) + 3 * np.exp(-4 * t)
    return x[2] * np.exp(-t * x[0]) - x[3] * np.exp(-t * x[1]) + x[5] * np.exp(-t * x[4]) - y


def penalty_1(x: Any) -> Any:
    return np.append(1e-5**0.5 * (x - 1), x @ x - 0.25)


def penalty_2(x: Any) -> Any:
    n, a = len(x), 1e-5**0.5
    y = np.exp(np.arange(2, n + 1) / 10) + np.exp(np.arange(1, n) / 10)
    pairs = a * (np.exp(x[1:] / 10) + np.exp(x[:-1] / 10) - y)
    ends = a * (np.exp(x[1:] / 10) - np.exp(-0.1))
    return np.concatenate([[x[0] - 0.2], pairs, ends, [np.arange(n, 0, -1) @ x**2 - 1]])


def variably_dimensioned(x: Any) -> Any:
    s = np.arange(1, len(x) + 1) @ (x - 1)
    return np.concatenate([x - 1, [s, s**2]])


def trigonometric(x: Any) -> Any:
    n = len(x)
    return n - np.cos(x).sum() + np.arange(1, n + 1) * (1 - np.cos(x)) - np.sin(x)


def broyden_tridiagonal(x: Any) -> Any:
    r = (3 - 2 * x) * x + 1
    r[1:] -= x[:-1]
    r[:-1] -= 2 * x[1:]
    return r


def broyden_banded(x: Any) -> Any:
    r, s = x * (2 + 5 * x**2) + 1, x * (1 + x)
    for i in range(len(x)):
        near = [j for j in range(max(0, i - 5), min(len(x), i + 2)) if j != i]
        r[i] -= s[near].sum()
    return r


def boundary_value(x: Any) -> Any:
    n = len(x)
    h = 1 / (n + 1)
    t = h * np.arange(1, n + 1)
    r = 2 * x + h**2 * (x + t + 1) ** 3 / 2
    r[1:] -= x[:-1]
    r[:-1] -= x[1:]
    return r


def integral_equation(x: Any) -> Any:
    n = len(x)
    h = 1 / (n + 1)
    t = h * np.arange(1, n + 1)
    cubes = (x + t + 1) ** 3
    left, right = np.cumsum(t * cubes), np.cumsum(((1 - t) * cubes)[::-1])[::-1]
    return x + h / 2 * ((1 - t) * left + t * np.append(right[1:], 0))


def extended_rosenbrock(x: Any) -> Any:
    return np.concatenate([10 * (x[1::2] - x[::2] ** 2), 1 - x[::2]])


def extended_powell(x: Any) -> Any:
    a, b, c, d = x[::4], x[1::4], x[2::4], x[3::4]
    parts = [a + 10 * b, 5**0.5 * (c - d), (b - 2 * c) ** 2, 10**0.5 * (a - d) ** 2]
    return np.concatenate(parts)


def mesh(n: int) -> np.ndarray:
    t = np.arange(1, n + 1) / (n + 1)
    return t * (t - 1)


PROBLEMS: list[tuple[Callable[[Any], Any], np.ndarray]] = [
    (beale, np.array([1.0, 1.0])),
    (powell_badly_scaled, np.array([0.0, 1.0])),
    (brown_badly_scaled, np.array([1.0, 1.0])),
    (gaussian, np.array([0.4, 1.0, 0.0])),
    (gulf, np.array([5.0, 2.5, 0.15])),
    (wood, np.array([-3.0, -1.0, -3.0, -1.0])),
    (biggs_exp6, np.array([1.0, 2.0, 1.0, 1.0, 1.0, 1.0])),
    (penalty_1, np.arange(1.0, 11.0)),
    (penalty_2, np.full(10, 0.5)),
    (variably_dimensioned, 1 - np.arange(1.0, 11.0) / 10),
    (trigonometric, np.full(10, 0.1)),
    (broyden_tridiagonal, np.full(10, -1.0)),
    (broyden_banded, np.full(10, -1.0)),
    (boundary_value, mesh(10)),
    (integral_equation, mesh(10)),
    (extended_rosenbrock, np.tile([-1.2, 1.0], 5)),
    (extended_powell, np.tile([3.0, -1.0, 0.0, 1.0], 3)),
]


def fits(half: int) -> list[Fit]:
    """Every second problem: 0 for the first half, 1 for that which was set aside."""
    made = []
    for function, start in PROBLEMS[half::2]:
        for power in range(3):
            name = f"{function.__name__} x{10**power}"
            x0 = start * 10.0**power
            made.append(Fit(name, partial(function), by_complex_step(function), x0, minima=(0.0,)))
    return made
