"""One run of a solver on a problem of least squares: what it found, and what that took."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import least_squares

import ksdmin
from examples.benchmarks.least_squares_suite.fits import Fit

# Tolerances of SciPy's methods: the least at which lm has six digits on all of NIST's fits but one.
TIGHT = {"ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15}
MOST_EVALUATIONS = 20_000
REPEATS = 3  # the seconds are the least of so many runs
SOLVED, MORE_DIGITS = 4.0, 6.0


class Counted:
    """Residuals and Jacobian of a problem, which count their calls."""

    def __init__(self, fit: Fit) -> None:
        self._fit, self.nfev, self.njev = fit, 0, 0

    def residuals(self, x: np.ndarray) -> np.ndarray:
        self.nfev += 1
        if self.nfev > MOST_EVALUATIONS:
            raise TooMany
        return self._fit.residuals(x)

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        self.njev += 1
        return self._fit.jacobian(x)


class TooMany(Exception):
    """A method that would not end."""


def scipy_method(name: str, **tolerances: float) -> Callable[[Fit, Counted, bool], Any]:
    """One of SciPy's, in the scaling that suits it best."""

    def run(fit: Fit, counted: Counted, with_jac: bool) -> Any:
        own = {"jac": counted.jacobian} if with_jac else {}
        if name != "lm" and fit.lower is not None:
            own["bounds"] = (fit.lower, fit.upper)
        return least_squares(
            counted.residuals,
            fit.start,
            method=name,
            x_scale="jac",
            loss=fit.loss,
            f_scale=fit.f_scale,
            max_nfev=MOST_EVALUATIONS,
            **own,
            **(tolerances or TIGHT),
        )

    return run


def ours(fit: Fit, counted: Counted, with_jac: bool) -> Any:
    """ksdmin.least_squares with its defaults."""
    own = {"jac": counted.jacobian} if with_jac else {}
    if fit.lower is not None:
        own["bounds"] = (fit.lower, fit.upper)
    return ksdmin.least_squares(
        counted.residuals, fit.start, loss=fit.loss, f_scale=fit.f_scale, **own
    )


METHODS: dict[str, Callable[[Fit, Counted, bool], Any]] = {
    "ksdmin": ours,
    **{name: scipy_method(name) for name in ("lm", "trf", "dogbox")},
}


def run(fit: Fit, method: str, with_jac: bool) -> dict[str, Any]:
    """The run as it is stored."""
    seconds, outcome = np.inf, {}
    for _ in range(REPEATS):
        counted = Counted(fit)
        began = time.process_time()
        outcome = {"success": False, "status": "", "digits": 0.0}
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                res = METHODS[method](fit, counted, with_jac)
            outcome["success"], outcome["status"] = bool(res.success), str(int(res.status))
            outcome["digits"] = round(fit.digits(res.x), 2)
            outcome["cost"] = float(res.cost)
        except TooMany:
            outcome["status"] = "evaluations"
        except (ValueError, ArithmeticError) as error:  # lm refuses few residuals, trf NaN
            outcome["status"] = type(error).__name__
        seconds = min(seconds, time.process_time() - began)
    return {
        "problem": fit.name,
        "method": method,
        **outcome,
        "nfev": counted.nfev,
        "njev": counted.njev,
        "seconds": round(seconds, 6),
    }
