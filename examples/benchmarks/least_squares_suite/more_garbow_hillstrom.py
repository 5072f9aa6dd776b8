"""The least-squares problems of Moré, Garbow and Hillstrom, as MINPACK's own driver runs them.

18 problems in 28 sizes, from the standard start, ten and a hundred times that: 53 runs (ACM TOMS 7,
1981). MINPACK's lmder takes 2,524 evaluations of residuals and 2,139 of Jacobians for them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from examples.benchmarks.least_squares_suite.fits import Fit, by_complex_step


def numbers(text: str) -> np.ndarray:
    return np.array(text.split(), dtype=float)


BARD = numbers("14 18 22 25 29 32 35 39 37 58 73 96 134 210 439") / 100
KOWALIK_X = numbers("4 2 1 0.5 0.25 0.167 0.125 0.1 0.0833 0.0714 0.0625")
KOWALIK_Y = numbers("1957 1947 1735 1600 844 627 456 342 323 235 246") / 1e4
MEYER = numbers(
    "34780 28610 23650 19630 16370 13720 11540 9744 8261 7030 6005 5147 4427 3820 3307 2872"
)
OSBORNE1 = numbers(
    """844 908 932 936 925 908 881 850 818 784 751 718 685 658 628 603 580 558 538 522 506 490
    478 467 457 448 438 431 424 420 414 411 406"""
)
OSBORNE2 = numbers(
    """1366 1191 1112 1013 991 885 831 847 786 725 746 679 608 655 616 606 602 626 651 724 649
    649 694 644 624 661 612 558 533 495 500 423 395 375 372 391 396 405 428 429 523 562 607 653
    672 708 633 668 645 632 591 559 597 625 739 710 729 720 636 581 428 292 162 98 54"""
)


def linear_full_rank(m: int, x: Any) -> Any:
    r = np.full(m, -2 * x.sum() / m - 1)
    r[: len(x)] += x
    return r


def linear_rank_1(m: int, x: Any) -> Any:
    return np.arange(1, m + 1) * (np.arange(1, len(x) + 1) @ x) - 1


def linear_rank_1_zeros(m: int, x: Any) -> Any:
    r = np.arange(m) * (np.arange(2, len(x)) @ x[1:-1]) - 1
    r[-1] = -1
    return r


def rosenbrock(m: int, x: Any) -> Any:
    return np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]])


def helical_valley(m: int, x: Any) -> Any:
    half = 0.5 if x[0].real < 0 else 0.0
    if x[0] == 0:
        theta = np.copysign(0.25, x[1].real)
    else:
        theta = np.arctan(x[1] / x[0]) / (2 * np.pi) + half
    radius = np.sqrt(x[0] ** 2 + x[1] ** 2)
    return np.array([10 * (x[2] - 10 * theta), 10 * (radius - 1), x[2]])


def powell_singular(m: int, x: Any) -> Any:
    a, b = (x[1] - 2 * x[2]) ** 2, (x[0] - x[3]) ** 2
    return np.array([x[0] + 10 * x[1], 5**0.5 * (x[2] - x[3]), a, 10**0.5 * b])


def freudenstein_roth(m: int, x: Any) -> Any:
    a = -13 + x[0] + ((5 - x[1]) * x[1] - 2) * x[1]
    return np.array([a, -29 + x[0] + ((1 + x[1]) * x[1] - 14) * x[1]])


def bard(m: int, x: Any) -> Any:
    u = np.arange(1, 16)
    v = 16 - u
    return BARD - (x[0] + u / (x[1] * v + x[2] * np.minimum(u, v)))


def kowalik_osborne(m: int, x: Any) -> Any:
    u = KOWALIK_X
    return KOWALIK_Y - x[0] * (u * (u + x[1])) / (u * (u + x[2]) + x[3])


def meyer(m: int, x: Any) -> Any:
    t = 5 * np.arange(1, 17) + 45
    return x[0] * np.exp(x[1] / (t + x[2])) - MEYER


def watson(m: int, x: Any) -> Any:
    t, j = np.arange(1, 30)[:, None] / 29, np.arange(len(x))
    slope = (t ** np.maximum(j - 1, 0) * j) @ x
    r = slope - ((t**j) @ x) ** 2 - 1
    return np.concatenate([r, [x[0], x[1] - x[0] ** 2 - 1]])


def box_3d(m: int, x: Any) -> Any:
    t = np.arange(1, m + 1) / 10
    return np.exp(-t * x[0]) - np.exp(-t * x[1]) + (np.exp(-10 * t) - np.exp(-t)) * x[2]


def jennrich_sampson(m: int, x: Any) -> Any:
    i = np.arange(1, m + 1)
    return 2 + 2 * i - np.exp(i * x[0]) - np.exp(i * x[1])


def brown_dennis(m: int, x: Any) -> Any:
    t = np.arange(1, m + 1) / 5
    return (x[0] + t * x[1] - np.exp(t)) ** 2 + (x[2] + np.sin(t) * x[3] - np.cos(t)) ** 2


def chebyquad(m: int, x: Any) -> Any:
    before, now, r = np.ones_like(x), 2 * x - 1, []
    for i in range(1, m + 1):
        r.append(now.mean() + (1 / (i**2 - 1) if i % 2 == 0 else 0))
        before, now = now, 2 * (2 * x - 1) * now - before
    return np.array(r)


def brown_almost_linear(m: int, x: Any) -> Any:
    r = x + x.sum() - (len(x) + 1)
    r[-1] = np.prod(x) - 1
    return r


def osborne_1(m: int, x: Any) -> Any:
    t = 10 * np.arange(33)
    return OSBORNE1 / 1e3 - (x[0] + x[1] * np.exp(-x[3] * t) + x[2] * np.exp(-x[4] * t))


def osborne_2(m: int, x: Any) -> Any:
    t = np.arange(65) / 10
    bumps = [x[k] * np.exp(-x[k + 4] * (t - x[k + 7]) ** 2) for k in (1, 2, 3)]
    return OSBORNE2 / 1e3 - (x[0] * np.exp(-x[4] * t) + sum(bumps))


def equidistant(n: int) -> list[float]:
    return [(i + 1) / (n + 1) for i in range(n)]


# The function, its start, m, the powers of ten of the starts, the norms of the residuals at local
# minima that are known, as MINPACK's driver prints them (0 where they vanish).
PROBLEMS: list[tuple[Callable[[int, Any], Any], list[float], int, int, list[float]]] = [
    (linear_full_rank, [1.0] * 5, 10, 1, [2.2360679774998]),
    (linear_full_rank, [1.0] * 5, 50, 1, [6.7082039324994]),
    (linear_rank_1, [1.0] * 5, 10, 1, [1.4638501094228]),
    (linear_rank_1, [1.0] * 5, 50, 1, [3.4826301657371]),
    (linear_rank_1_zeros, [1.0] * 5, 10, 1, [1.9097274509217]),
    (linear_rank_1_zeros, [1.0] * 5, 50, 1, [3.6917294402077]),
    (rosenbrock, [-1.2, 1.0], 2, 3, [0.0]),
    (helical_valley, [-1.0, 0.0, 0.0], 3, 3, [0.0]),
    (powell_singular, [3.0, -1.0, 0.0, 1.0], 4, 3, [0.0]),
    (freudenstein_roth, [0.5, -2.0], 2, 3, [0.0, 6.99887517584575]),
    (bard, [1.0, 1.0, 1.0], 15, 3, [0.0906359603390466, 4.17476870138515]),
    (
        kowalik_osborne,
        [0.25, 0.39, 0.415, 0.39],
        11,
        3,
        [0.0175358377102, 0.0320521929, 0.03992933791],
    ),
    (meyer, [0.02, 4000.0, 250.0], 16, 2, [9.37794514651939]),
    (watson, [0.0] * 6, 31, 3, [0.0478295939097602]),
    (watson, [0.0] * 9, 31, 3, [0.00118311459205]),
    (watson, [0.0] * 12, 31, 3, [2.17310402535861e-05]),
    (box_3d, [0.0, 10.0, 20.0], 10, 1, [0.0]),
    (jennrich_sampson, [0.3, 0.4], 10, 1, [11.1517793413499]),
    (brown_dennis, [25.0, 5.0, -5.0, -1.0], 20, 3, [292.95427058]),
    (chebyquad, [0.5], 8, 3, [1.88623796907732, 1.88424820499347]),
    (chebyquad, equidistant(8), 8, 1, [0.0593032355046727]),
    (chebyquad, equidistant(9), 9, 1, [0.0]),
    (chebyquad, equidistant(10), 10, 1, [0.0806471004038253]),
    (brown_almost_linear, [0.5] * 10, 10, 3, [0.0, 1.0]),
    (brown_almost_linear, [0.5] * 30, 30, 1, [0.0, 1.0]),
    (brown_almost_linear, [0.5] * 40, 40, 1, [0.0, 1.0]),
    (osborne_1, [0.5, 1.5, -1.0, 0.01, 0.02], 33, 1, [0.00739249260904843]),
    (
        osborne_2,
        [1.3, 0.65, 0.65, 0.7, 0.6, 3.0, 5.0, 7.0, 2.0, 4.5, 5.5],
        65,
        1,
        [0.200344044741],
    ),
]


def fits() -> list[Fit]:
    """All 53. Ten times zero are ten: Watson's starts, as the driver has it."""
    made = []
    for function, start, m, starts, norms in PROBLEMS:
        residuals = partial(function, m)
        for power in range(starts):
            x0 = (
                np.array(start) * 10.0**power
                if any(start)
                else np.full(len(start), 0.0 if not power else 10.0**power)
            )
            name = f"{function.__name__} {len(start)}x{m} x{10**power}"
            made.append(
                Fit(
                    name,
                    residuals,
                    by_complex_step(residuals),
                    x0,
                    minima=tuple(v * v for v in norms),
                )
            )
    return made
