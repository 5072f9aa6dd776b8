"""One run of one method on one problem."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import scipy.optimize

import ksdmin
from examples.benchmarks.regression_suite.gap_recorder import GapRecorder
from examples.benchmarks.regression_suite.linear_model import LinearModel
from examples.harness.recorder import Spent

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
    "ksd-everything": {},
}
FIRST_SETS = {"ksd-everything": {"gradient": 1.0, "curvature": 1 / 20, "search": 1 / 20}}
DEFAULT = ("ksd", "ksd-paper", *SCIPY)
CAP = 20_000  # passes
PAPER_CAP = 1000  # its fixed sets keep it from converging
USED_UP = "passes used up"
SEEDS = (0, 1, 2)


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
    cap = min(cap, PAPER_CAP) if method == "ksd-paper" else cap
    recorder = GapRecorder(own, optimum, cap)
    if method in KSD:
        return run_ksd(method, problem, recorder, seed, options or {})
    return run_scipy(method, problem, recorder, options or {})


def run_scipy(method: str, problem: LinearModel, recorder: GapRecorder, options: dict) -> dict:
    """SciPy's methods end at the last target, or when their passes are used up."""
    scale = problem.samples if method.endswith("-sum") else 1.0
    functions, last = WholeSet(problem, scale, recorder), problem.x0

    def callback(intermediate_result) -> None:
        nonlocal last
        last = intermediate_result.x.copy()
        recorder.see(last, intermediate_result.fun / scale, functions.passes)
        if recorder.done:
            raise StopIteration

    derivatives = {"jac": functions.gradient}
    if method != "L-BFGS-B":
        derivatives["hessp"] = functions.product
    common = {"callback": callback, "options": SCIPY[method] | options, **derivatives}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            res = scipy.optimize.minimize(
                functions.value, problem.x0, method=method.removesuffix("-sum"), **common
            )
            message = str(res.message)
        except Spent:
            message = USED_UP
    ended = recorder.end(last, functions.passes)
    return ended | {"success": recorder.done, "message": message[:80]}


class WholeSet:
    """A problem on all samples, times `scale`, as SciPy calls it; ends the run at its limit."""

    def __init__(self, problem: LinearModel, scale: float, recorder: GapRecorder) -> None:
        self._counts = SimpleNamespace(nfev=0, njev=0, nhev=0)
        self._problem, self._scale = problem.counting(self._counts), scale
        self._recorder, self._at, self._product = recorder, None, None

    @property
    def passes(self) -> float:
        return self._counts.nfev + self._counts.njev + 2 * self._counts.nhev

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
        self._recorder.work.passes = self.passes
        self._recorder.check()


def run_ksd(
    method: str, problem: LinearModel, recorder: GapRecorder, seed: int | None, options: dict
):
    """KSD goes on to its own test, |g| <= GTOL on the whole set, past the last target."""

    def callback(intermediate_result) -> None:
        record = intermediate_result.record
        value = record.value if record.size_A == problem.samples else None
        recorder.see(intermediate_result.x, value, record.passes)
        if recorder.spent():
            raise StopIteration

    options = {"gtol": GTOL, "maxiter": FAR} | KSD[method] | options
    subsets = ksdmin.Subsets(problem.samples, **FIRST_SETS.get(method, {}))
    problem.offer_diagonal(method == "ksd-diagonal")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        res = ksdmin.minimize(
            problem, subsets=subsets, rng=seed, callback=callback, options=options
        )
    ended = recorder.end(res.x, res.history[-1].passes)
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
