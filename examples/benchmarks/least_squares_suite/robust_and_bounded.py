"""NIST's fits with outliers and robust losses, and with a bound that holds a variable."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from examples.benchmarks.least_squares_suite import nist
from examples.benchmarks.least_squares_suite.fits import Fit

NAMES = ("Misra1a", "Chwirut2", "Gauss1", "Rat42", "Rat43", "Kirby2", "Eckerle4", "DanWood")
NAMES = (*NAMES, "Misra1d", "Roszman1")


def robust() -> list[Fit]:
    """20: ten sets with every tenth point moved far off, two losses, from the near start."""
    rng, made = np.random.default_rng(0), []
    for name in NAMES:
        fit = nist.fit(name, 1)
        noise = fit.residuals(fit.certified)
        moved, size = np.zeros(len(noise)), float(noise.std())
        few = rng.choice(len(noise), max(1, len(noise) // 10), replace=False)
        moved[few] = 20 * size * rng.standard_normal(len(few))

        def residuals(b: np.ndarray, fit: Fit = fit, by: np.ndarray = moved) -> np.ndarray:
            return fit.residuals(b) + by

        for loss in ("soft_l1", "cauchy"):
            own = {"residuals": residuals, "loss": loss, "f_scale": 2 * size, "certified": None}
            made.append(replace(fit, name=f"{fit.name} {loss}", **own))
    return made


def bounded() -> list[Fit]:
    """20: ten sets, two starts, with a bound half way from the start to the first unknown."""
    made = []
    for name in NAMES:
        for start in (0, 1):
            fit = nist.fit(name, start)
            n, half = len(fit.start), (fit.start[0] + fit.certified[0]) / 2
            lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
            (upper if fit.start[0] < fit.certified[0] else lower)[0] = half
            own = {"lower": lower, "upper": upper, "certified": None}
            made.append(replace(fit, **own))
    return made
