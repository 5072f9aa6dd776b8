"""Functions of neighbours, and functions with one variable that all terms share.

From CUTEst (S2MPJ), from Moré, Garbow and Hillstrom, and from the classic literature; each takes n
and returns the start and the `Sum`. `comparison/classic_functions.py` has most of them by another
way, which the tests compare.
"""

from __future__ import annotations

import numpy as np

from examples.benchmarks.cheap_functions.elements import (
    FIRST,
    LAST,
    Array,
    Sum,
    Terms,
    of_difference,
    square,
    univariate,
    window,
)

Made = tuple[Array, Sum]
ALL = slice(None)


def alternating(n: int, *values: float) -> Array:
    return np.resize(np.array(values, float), n)


def arwhead(n: int) -> Made:
    return np.ones(n), Sum(circle([slice(0, -1), LAST]))


def engval1(n: int) -> Made:
    return np.full(n, 2.0), Sum(circle(window(n, 2)))


def circle(places: list[slice]) -> Terms:
    """(x^2 + y^2)^2 - 4 x + 3."""

    def slopes(x: Array, y: Array) -> tuple[Array, Array]:
        s = 4 * (x * x + y * y)
        return x * s - 4, y * s

    def curvatures(x: Array, y: Array) -> dict:
        s = 4 * (x * x + y * y)
        return {(0, 0): s + 8 * x * x, (0, 1): 8 * x * y, (1, 1): s + 8 * y * y}

    return Terms(places, lambda x, y: (x * x + y * y) ** 2 - 4 * x + 3, slopes, curvatures)


def bdqrtic(n: int) -> Made:
    places = [*window(n - 1, 4), LAST]
    weights = np.arange(1.0, 6.0)

    def residual(*x: Array) -> Array:
        return sum(w * v * v for w, v in zip(weights, x, strict=True))

    def slopes(*x: Array) -> list[Array]:
        return [2 * w * v for w, v in zip(weights, x, strict=True)]

    def curvatures(*_: Array) -> dict:
        return {(i, i): 2 * w for i, w in enumerate(weights)}

    line = univariate(places[0], lambda a: (3 - 4 * a) ** 2, lambda a: 32 * a - 24, lambda a: 32.0)
    return np.ones(n), Sum(line, square(places, residual, slopes, curvatures))


def cosine(n: int) -> Made:
    def slopes(x: Array, y: Array) -> tuple[Array, Array]:
        s = np.sin(x * x - y / 2)
        return -2 * x * s, s / 2

    def curvatures(x: Array, y: Array) -> dict:
        u = x * x - y / 2
        c = np.cos(u)
        return {(0, 0): -2 * np.sin(u) - 4 * x * x * c, (0, 1): x * c, (1, 1): -c / 4}

    return np.ones(n), Sum(
        Terms(window(n, 2), lambda x, y: np.cos(x * x - y / 2), slopes, curvatures)
    )


def cragglvy(n: int) -> Made:
    a, b, c, d = window(n, 4, 2)

    def exponential(a: Array, b: Array) -> dict:
        e = np.exp(a)
        t = e - b
        square = 12 * t * t
        return {(0, 0): square * e * e + 4 * t**3 * e, (0, 1): -square * e, (1, 1): square}

    def exponential_slopes(a: Array, b: Array) -> tuple[Array, Array]:
        e = np.exp(a)
        cube = 4 * (e - b) ** 3
        return cube * e, -cube

    return np.r_[1.0, np.full(n - 1, 2.0)], Sum(
        Terms([a, b], lambda a, b: (np.exp(a) - b) ** 4, exponential_slopes, exponential),
        of_difference([b, c], lambda u: 100 * u**6, lambda u: 600 * u**5, lambda u: 3000 * u**4),
        of_difference([c, d], *tangent()),
        univariate(a, lambda a: a**8, lambda a: 8 * a**7, lambda a: 56 * a**6),
        univariate(d, lambda d: (d - 1) ** 2, lambda d: 2 * (d - 1), lambda d: 2.0),
    )


def tangent() -> tuple:
    """(tan v + v)^4 and its derivatives."""

    def slope(v: Array) -> Array:
        t = np.tan(v)
        return 4 * (t + v) ** 3 * (2 + t * t)

    def curvature(v: Array) -> Array:
        t = np.tan(v)
        q, dq = t + v, 2 + t * t
        return 12 * q * q * dq * dq + 8 * q**3 * t * (1 + t * t)

    return lambda v: (np.tan(v) + v) ** 4, slope, curvature


def dixmaani(n: int) -> Made:
    m = n // 3
    s = (np.arange(1.0, n + 1) / n) ** 2

    def mixed_slopes(x: Array, y: Array) -> tuple[Array, Array]:
        cube = 0.25 * x * y**3
        return cube * y, 2 * cube * x

    def mixed(x: Array, y: Array) -> dict:
        y2 = y * y
        return {(0, 0): 0.25 * y2 * y2, (0, 1): x * y2 * y, (1, 1): 1.5 * x * x * y2}

    return np.full(n, 2.0), Sum(
        univariate(ALL, lambda x: s * x * x, lambda x: 2 * s * x, lambda x: 2 * s),
        Terms(
            [slice(0, 2 * m), slice(m, 3 * m)],
            lambda x, y: 0.125 * (x * y * y) ** 2,
            mixed_slopes,
            mixed,
        ),
        Terms(
            [slice(0, m), slice(2 * m, 3 * m)],
            lambda x, y: 0.125 * s[:m] * x * y,
            lambda x, y: (0.125 * s[:m] * y, 0.125 * s[:m] * x),
            lambda x, y: {(0, 1): 0.125 * s[:m]},
        ),
        constant=1.0,
    )


def dixon_price(n: int) -> Made:
    chain = square(
        window(n, 2),
        lambda x, y: 2 * y * y - x,
        lambda x, y: (-1.0, 4 * y),
        lambda x, y: {(1, 1): 4.0},
        weight=np.arange(2.0, n + 1),
    )
    return np.ones(n), Sum(from_one(FIRST), chain)


def from_one(place: slice) -> Terms:
    """(x - 1)^2."""
    return univariate(place, lambda x: (x - 1) ** 2, lambda x: 2 * (x - 1), lambda x: 2.0)


def dqdrtic(n: int) -> Made:
    weights = np.zeros(n)
    for place, weight in zip(window(n, 3), (1.0, 100.0, 100.0), strict=True):
        weights[place] += weight
    return np.full(n, 3.0), Sum(
        univariate(ALL, lambda x: weights * x * x, lambda x: 2 * weights * x, lambda x: 2 * weights)
    )


def edensch(n: int) -> Made:
    x, y = window(n, 2)
    return np.zeros(n), Sum(
        univariate(
            x, lambda x: (x - 2) ** 4, lambda x: 4 * (x - 2) ** 3, lambda x: 12 * (x - 2) ** 2
        ),
        square(
            [x, y],
            lambda x, y: (x - 2) * y,
            lambda x, y: (y, x - 2),
            lambda x, y: {(0, 1): 1.0},
        ),
        univariate(y, lambda y: (y + 1) ** 2, lambda y: 2 * (y + 1), lambda y: 2.0),
        constant=16.0,
    )


def fletchcr(n: int) -> Made:
    return np.zeros(n), Sum(
        square(
            window(n, 2),
            lambda x, y: y - x + 1 - x * x,
            lambda x, y: (-1 - 2 * x, 1.0),
            lambda x, y: {(0, 0): -2.0},
            weight=100.0,
        )
    )


def freuroth(n: int) -> Made:
    return np.r_[0.5, -2.0, np.zeros(n - 2)], Sum(
        square(
            window(n, 2),
            lambda x, y: x - 13 + ((5 - y) * y - 2) * y,
            lambda x, y: (1.0, (10 - 3 * y) * y - 2),
            lambda x, y: {(1, 1): 10 - 6 * y},
        ),
        square(
            window(n, 2),
            lambda x, y: x - 29 + ((y + 1) * y - 14) * y,
            lambda x, y: (1.0, (3 * y + 2) * y - 14),
            lambda x, y: {(1, 1): 6 * y + 2},
        ),
    )


def liarwhd(n: int) -> Made:
    return np.full(n, 4.0), Sum(parabola([ALL, FIRST], 4.0), from_one(ALL))


def nondia(n: int) -> Made:
    return -np.ones(n), Sum(from_one(FIRST), parabola([slice(1, None), FIRST], 100.0))


def rosenbrock(n: int) -> Made:
    """The chain, from (-1.2, 1, -1.2, ...)."""
    x, y = window(n, 2)
    return alternating(n, -1.2, 1.0), Sum(parabola([x, y], 100.0), from_one(x))


def srosenbr(n: int) -> Made:
    x, y = window(n, 2, 2)
    return alternating(n, -1.2, 1.0), Sum(parabola([x, y], 100.0), from_one(x))


def parabola(places: list[slice], weight: float) -> Terms:
    """The square of y - x^2."""
    return square(
        places,
        lambda x, y: y - x * x,
        lambda x, y: (-2 * x, 1.0),
        lambda x, y: {(0, 0): -2.0},
        weight=weight,
    )


def woods(n: int) -> Made:
    a, b, c, d = window(n, 4, 4)
    return alternating(n, -3.0, -1.0, -3.0, -1.0), Sum(
        parabola([a, b], 100.0),
        from_one(a),
        parabola([c, d], 90.0),
        from_one(c),
        square([b, d], lambda b, d: b + d - 2, lambda b, d: (1.0, 1.0), weight=10.0),
        of_difference([b, d], lambda u: u * u / 10, lambda u: u / 5, lambda u: 0.2),
    )


def powell_singular(n: int) -> Made:
    a, b, c, d = window(n, 4, 4)
    return alternating(n, 3.0, -1.0, 0.0, 1.0), Sum(
        square([a, b], lambda a, b: a + 10 * b, lambda a, b: (1.0, 10.0)),
        of_difference([c, d], lambda u: 5 * u * u, lambda u: 10 * u, lambda u: 10.0),
        square(
            [b, c],
            lambda b, c: (b - 2 * c) ** 2,
            lambda b, c: (2 * (b - 2 * c), -4 * (b - 2 * c)),
            lambda b, c: {(0, 0): 2.0, (0, 1): -4.0, (1, 1): 8.0},
        ),
        of_difference([a, d], lambda u: 10 * u**4, lambda u: 40 * u**3, lambda u: 120 * u * u),
    )


def tridia(n: int) -> Made:
    chain = square(
        window(n, 2),
        lambda x, y: 2 * y - x,
        lambda x, y: (-1.0, 2.0),
        weight=np.arange(2.0, n + 1),
    )
    return np.ones(n), Sum(from_one(FIRST), chain)


def quartic(n: int) -> Made:
    """The sum of d x^2 / 2 + x^4 / 4 - x, with d from 1 to 1e4."""
    d = np.geomspace(1.0, 1e4, n)
    return np.zeros(n), Sum(
        univariate(
            ALL,
            lambda x: (0.5 * d + 0.25 * x * x) * x * x - x,
            lambda x: (d + x * x) * x - 1,
            lambda x: d + 3 * x * x,
        )
    )
