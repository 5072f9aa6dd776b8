"""NIST's Statistical Reference Datasets for nonlinear regression: 27 data sets, two starts each.

The data (``nist_strd.json``), with certified values and standard deviations, are in the public
domain: https://www.itl.nist.gov/div898/strd. Models and their derivatives are written out here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from examples.benchmarks.least_squares_suite.fits import Fit

DATA = Path(__file__).parent / "nist_strd.json"

Pair = tuple[Any, list[Any]]
"""The model's values, and its derivative in each unknown."""


def bennett(b: Any, x: Any) -> Pair:
    base, power = b[1] + x, -1 / b[2]
    p = base**power
    return b[0] * p, [p, b[0] * power * p / base, b[0] * p * np.log(base) / b[2] ** 2]


def saturation(b: Any, x: Any) -> Pair:
    e = np.exp(-b[1] * x)
    return b[0] * (1 - e), [1 - e, b[0] * x * e]


def chwirut(b: Any, x: Any) -> Pair:
    d = b[1] + b[2] * x
    f = np.exp(-b[0] * x) / d
    return f, [-x * f, -f / d, -x * f / d]


def danwood(b: Any, x: Any) -> Pair:
    p = x ** b[1]
    return b[0] * p, [p, b[0] * p * np.log(x)]


def enso(b: Any, x: Any) -> Pair:
    year, one, two = 2 * np.pi * x / 12, 2 * np.pi * x / b[3], 2 * np.pi * x / b[6]
    c0, s0, c1, s1, c2, s2 = (f(a) for a in (year, one, two) for f in (np.cos, np.sin))
    f = b[0] + b[1] * c0 + b[2] * s0 + b[4] * c1 + b[5] * s1 + b[7] * c2 + b[8] * s2
    slow = (b[4] * s1 - b[5] * c1) * one / b[3], (b[7] * s2 - b[8] * c2) * two / b[6]
    return f, [np.ones_like(x), c0, s0, slow[0], c1, s1, slow[1], c2, s2]


def eckerle(b: Any, x: Any) -> Pair:
    z = (x - b[2]) / b[1]
    e = np.exp(-0.5 * z**2) / b[1]
    return b[0] * e, [e, b[0] * e * (z**2 - 1) / b[1], b[0] * e * z / b[1]]


def gauss(b: Any, x: Any) -> Pair:
    e = np.exp(-b[1] * x)
    z1, z2 = (x - b[3]) / b[4], (x - b[6]) / b[7]
    e1, e2 = np.exp(-(z1**2)), np.exp(-(z2**2))
    first = [e1, 2 * b[2] * e1 * z1 / b[4], 2 * b[2] * e1 * z1**2 / b[4]]
    second = [e2, 2 * b[5] * e2 * z2 / b[7], 2 * b[5] * e2 * z2**2 / b[7]]
    return b[0] * e + b[2] * e1 + b[5] * e2, [e, -b[0] * x * e, *first, *second]


def rational(above: int, below: int, b: Any, x: Any) -> Pair:
    """Polynomials of these degrees, the lower one beginning with 1."""
    powers = [x**k for k in range(max(above, below) + 1)]
    top = sum(c * p for c, p in zip(b[: above + 1], powers[: above + 1], strict=True))
    low = 1 + sum(c * p for c, p in zip(b[above + 1 :], powers[1 : below + 1], strict=True))
    f = top / low
    return f, [
        *(p / low for p in powers[: above + 1]),
        *(-f * p / low for p in powers[1 : below + 1]),
    ]


def lanczos(b: Any, x: Any) -> Pair:
    e = [np.exp(-b[k] * x) for k in (1, 3, 5)]
    f = b[0] * e[0] + b[2] * e[1] + b[4] * e[2]
    return f, [e[0], -b[0] * x * e[0], e[1], -b[2] * x * e[1], e[2], -b[4] * x * e[2]]


def mgh09(b: Any, x: Any) -> Pair:
    low = x**2 + x * b[2] + b[3]
    p = (x**2 + x * b[1]) / low
    return b[0] * p, [p, b[0] * x / low, -b[0] * p * x / low, -b[0] * p / low]


def mgh10(b: Any, x: Any) -> Pair:
    low = x + b[2]
    e = np.exp(b[1] / low)
    return b[0] * e, [e, b[0] * e / low, -b[0] * e * b[1] / low**2]


def mgh17(b: Any, x: Any) -> Pair:
    e1, e2 = np.exp(-x * b[3]), np.exp(-x * b[4])
    f = b[0] + b[1] * e1 + b[2] * e2
    return f, [np.ones_like(x), e1, e2, -x * b[1] * e1, -x * b[2] * e2]


def misra1b(b: Any, x: Any) -> Pair:
    d = 1 + b[1] * x / 2
    return b[0] * (1 - d**-2), [1 - d**-2, b[0] * x * d**-3]


def misra1c(b: Any, x: Any) -> Pair:
    d = 1 + 2 * b[1] * x
    return b[0] * (1 - d**-0.5), [1 - d**-0.5, b[0] * x * d**-1.5]


def misra1d(b: Any, x: Any) -> Pair:
    d = 1 + b[1] * x
    return b[0] * b[1] * x / d, [b[1] * x / d, b[0] * x / d**2]


def nelson(b: Any, x: Any, x2: Any) -> Pair:
    e = x * np.exp(-b[2] * x2)
    return b[0] - b[1] * e, [np.ones_like(x), -e, b[1] * e * x2]


def rat42(b: Any, x: Any) -> Pair:
    e = np.exp(b[1] - b[2] * x)
    f = b[0] / (1 + e)
    slope = -f * e / (1 + e)
    return f, [1 / (1 + e), slope, -slope * x]


def rat43(b: Any, x: Any) -> Pair:
    e = np.exp(b[1] - b[2] * x)
    p = (1 + e) ** (-1 / b[3])
    slope = -b[0] * p * e / (1 + e) / b[3]
    return b[0] * p, [p, slope, -slope * x, b[0] * p * np.log(1 + e) / b[3] ** 2]


def roszman(b: Any, x: Any) -> Pair:
    d = x - b[3]
    low = np.pi * (d**2 + b[2] ** 2)
    return b[0] - b[1] * x - np.arctan(b[2] / d) / np.pi, [
        np.ones_like(x),
        -x,
        -d / low,
        -b[2] / low,
    ]


MODELS: dict[str, Callable[..., Pair]] = {
    "Bennett5": bennett,
    "BoxBOD": saturation,
    "Chwirut1": chwirut,
    "Chwirut2": chwirut,
    "DanWood": danwood,
    "ENSO": enso,
    "Eckerle4": eckerle,
    "Gauss1": gauss,
    "Gauss2": gauss,
    "Gauss3": gauss,
    "Hahn1": partial(rational, 3, 3),
    "Kirby2": partial(rational, 2, 2),
    "Lanczos1": lanczos,
    "Lanczos2": lanczos,
    "Lanczos3": lanczos,
    "MGH09": mgh09,
    "MGH10": mgh10,
    "MGH17": mgh17,
    "Misra1a": saturation,
    "Misra1b": misra1b,
    "Misra1c": misra1c,
    "Misra1d": misra1d,
    "Nelson": nelson,
    "Rat42": rat42,
    "Rat43": rat43,
    "Roszman1": roszman,
    "Thurber": partial(rational, 3, 3),
}


@cache
def data() -> dict[str, dict[str, Any]]:
    """Every data set: level, starts, certified values and errors, rss, y and x."""
    return json.loads(DATA.read_text())


def fits() -> list[Fit]:
    """All 54."""
    return [fit(name, start) for name in MODELS for start in (0, 1)]


def fit(name: str, start: int) -> Fit:
    """One of them; `start` is 0 for the far one, 1 for the near one."""
    known, model = data()[name], MODELS[name]
    y, x = np.array(known["y"], dtype=float), [np.array(column, float) for column in known["x"]]
    y = np.log(y) if name == "Nelson" else y

    def residuals(b: np.ndarray) -> np.ndarray:
        return model(b, *x)[0] - y

    def jacobian(b: np.ndarray) -> np.ndarray:
        return np.array(model(b, *x)[1]).T

    certified = np.array(known["certified"])
    return Fit(
        f"{name} {start + 1}", residuals, jacobian, np.array(known["starts"][start]), certified
    )
