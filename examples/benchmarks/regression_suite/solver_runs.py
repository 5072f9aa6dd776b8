"""One run of one method on one problem: passes and seconds to each gap.

A value or a gradient on |S| of N samples is |S| / N passes, a product twice that, the diagonal
counted like a gradient. What the harness evaluates for itself is neither counted nor timed.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import scipy.optimize

import ksdmin
from examples.benchmarks.regression_suite.linear_model import LinearModel

TARGETS = (1e-3, 1e-6, 1e-9)  # relative gaps
GTOL = 1e-9  # of ksd: the whole gradient's largest entry at the end of a run
FAR = 10**9
SCIPY = {
    "L-BFGS-B": {"maxiter": FAR, "maxfun": FAR, "ftol": 0.0, "gtol": 0.0},
    "Newton-CG": {"maxiter": FAR, "xtol": 1e-15},
    "trust-krylov": {"maxiter": FAR, "gtol": 0.0},
}
# Newton-CG takes a curvature below 3 eps for none, and trust-krylov loses its way in small numbers
# too: of the mean of the losses they often cannot find the minimum, of their sum they can.
SCIPY |= {f"{name}-sum": SCIPY[name] for name in ("Newton-CG", "trust-krylov")}
KSD = {
    "ksd": {},
    "ksd-paper": dict(ksdmin.PAPER),
    "ksd-diagonal": {},
}
DEFAULT = ("ksd", "ksd-paper", *SCIPY)
CAP = 20_000  # passes
PAPER_CAP = 1000  # its fixed sets keep it from converging
USED_UP = "passes used up"
SEEDS = (0, 1, 2)


class Spent(Exception):
    """The passes are used up."""


class Watch:
    """Notes when the gap falls below each target; its own work stops the clocks."""

    def __init__(self, problem: LinearModel, optimum: dict[str, float], cap: float) -> None:
        self._problem, self._least = problem, optimum["value"]
        self._range = optimum["start"] - optimum["value"]
        self.cap, self.reached, self.gap, self.nit = cap, {}, 1.0, 0
        self._began = clocks()

    def see(self, value: float | None, x: np.ndarray, passes: float) -> None:
        """After an iteration; `value` is None where the method does not know it on all samples."""
        stopped = clocks()
        self.nit += 1
        if value is None:
            value = self._problem.value(x)
        self.gap = (value - self._least) / self._range
        seconds, processor = stopped - self._began
        for target in TARGETS:
            if self.gap <= target and f"{target:.0e}" not in self.reached:
                self.reached[f"{target:.0e}"] = {
                    "passes": round(passes, 2),
                    "seconds": round(seconds, 3),
                    "processor": round(processor, 3),
                    "nit": self.nit,
                }
        self._began += clocks() - stopped

    @property
    def done(self) -> bool:
        return len(self.reached) == len(TARGETS)

    def end(self, x: np.ndarray, passes: float) -> dict:
        seconds, processor = clocks() - self._began
        _, g = self._problem.value_and_gradient(x)
        return {
            "reached": self.reached,
            "cap": self.cap,
            "gap": self.gap,
            "gradient": float(np.abs(g).max()),
            "nit": self.nit,
            "passes": round(passes, 2),
            "seconds": round(seconds, 3),
            "processor": round(processor, 3),
        }


def clocks() -> np.ndarray:
    """Wall time and this process's processor time."""
    return np.array([time.perf_counter(), time.process_time()])


def run(
    method: str,
    problem: LinearModel,
    optimum: dict[str, float],
    seed: int | None = None,
    options: dict | None = None,
    cap: float = CAP,
) -> dict:
    """What `method` needs on `problem`, at most `cap` passes."""
    own = problem.counting(SimpleNamespace(nfev=0, njev=0, nhev=0))  # what it counts is dropped
    watch = Watch(own, optimum, min(cap, PAPER_CAP) if method == "ksd-paper" else cap)
    if method in KSD:
        return run_ksd(method, problem, watch, seed, options or {})
    return run_scipy(method, problem, watch, options or {})


def run_scipy(method: str, problem: LinearModel, watch: Watch, options: dict) -> dict:
    """SciPy's methods end at the last target, or when their passes are used up."""
    counts, last = SimpleNamespace(nfev=0, njev=0, nhev=0), problem.x0
    scale = problem.samples if method.endswith("-sum") else 1.0
    verbs = Whole(problem.counting(counts), scale, lambda: passes_of(counts) > watch.cap)

    def callback(intermediate_result) -> None:
        nonlocal last
        last = intermediate_result.x.copy()
        watch.see(intermediate_result.fun / scale, last, passes_of(counts))
        if watch.done:
            raise StopIteration

    derivatives = {"jac": verbs.gradient}
    if method != "L-BFGS-B":
        derivatives["hessp"] = verbs.product
    message = USED_UP
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            res = scipy.optimize.minimize(
                verbs.value,
                problem.x0,
                method=method.removesuffix("-sum"),
                callback=callback,
                options=SCIPY[method] | options,
                **derivatives,
            )
            message = str(res.message)
        except Spent:
            pass
    return watch.end(last, passes_of(counts)) | {"success": watch.done, "message": message[:80]}


class Whole:
    """A problem on the whole set as SciPy's callables, times `scale`; ends the run when `spent`."""

    def __init__(self, problem: LinearModel, scale: float, spent: Callable[[], bool]) -> None:
        self._problem, self._scale, self._spent = problem, scale, spent
        self._at = self._product = None

    def value(self, x):
        self._check()
        return self._scale * self._problem.value(x)

    def gradient(self, x):
        self._check()
        return self._scale * self._problem.value_and_gradient(x)[1]

    def product(self, x, p):
        self._check()
        if self._at is None or not np.array_equal(self._at, x):
            self._at, self._product = x.copy(), self._problem.curvature(x)
        return self._scale * self._product(p)

    def _check(self) -> None:
        if self._spent():
            raise Spent


def passes_of(counts: SimpleNamespace) -> float:
    return counts.nfev + counts.njev + 2 * counts.nhev


def run_ksd(method: str, problem: LinearModel, watch: Watch, seed: int | None, options: dict):
    """KSD goes on to its own test, |g| <= GTOL on the whole set, past the last target."""

    def callback(intermediate_result) -> None:
        record = intermediate_result.record
        value = record.value if record.size_A == problem.samples else None
        watch.see(value, intermediate_result.x, record.passes)
        if record.passes > watch.cap:
            raise StopIteration

    options = {"gtol": GTOL, "maxiter": FAR} | KSD[method] | options
    if isinstance(options.get("policies"), dict):
        policies = KSD[method].get("policies", ksdmin.Options.policies)
        options["policies"] = dataclasses.replace(policies, **options["policies"])
    problem.has_diagonal = method == "ksd-diagonal"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        res = ksdmin.minimize(
            problem, subsets=problem.samples, rng=seed, callback=callback, options=options
        )
    ended = watch.end(res.x, res.history[-1].passes)
    for reached in ended["reached"].values():
        reached |= split(res.history[: reached["nit"] + 1], problem.samples)
    converged = bool(res.success) and ended["gradient"] <= GTOL
    last = res.history[-1]
    sizes = {"sizes": [last.size_A, last.size_B, last.size_C]}
    return (
        ended
        | split(res.history, problem.samples)
        | sizes
        | {"success": converged, "message": str(res.message)[:80]}
    )


def split(history: ksdmin.History, samples: int) -> dict[str, float]:
    """The passes by what they were spent on: A's gradients, B's products, C's values.

    A record has the sizes that the next iteration uses. Where C is everything, the search has
    computed the next gradient too, and that is counted as C's.
    """
    nhev, size_A, size_B, size_C = (
        history[name] for name in ("nhev", "size_A", "size_B", "size_C")
    )
    products = float(2 * np.diff(nhev) @ size_B[:-1]) / samples
    own = np.concatenate([[True], size_C[:-1] < samples])
    gradients = float(2 * size_A @ own) / samples
    rest = history["passes"][-1] - products - gradients
    return {"A": round(gradients, 1), "B": round(products, 1), "C": round(rest, 1)}
