"""The runs that are kept, one file per method, and what they cost."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from examples.benchmarks.regression_suite.solver_runs import KSD, SCIPY, USED_UP
from examples.harness.store import Run, Store

RESULTS = Path(__file__).resolve().parents[1] / "results" / "regression"
OTHERS = {  # with two scales of the objective, the better one at each problem
    "L-BFGS-B": ("L-BFGS-B",),
    "Newton-CG": ("Newton-CG", "Newton-CG-sum"),
    "trust-krylov": ("trust-krylov", "trust-krylov-sum"),
}
Problem = tuple[str, float]


def runs_of(method: str, folder: Path) -> Store:
    """The runs of one method."""
    return Store(folder / f"{method}.json", identity=("data", "l2", "seed"))


def optima(folder: Path) -> Store:
    """The least values."""
    return Store(folder / "optima.json", identity=("data", "l2"))


def label(data: str, l2: float, seed: int | None = None) -> str:
    """What a problem, or a run on it, is called."""
    return f"{data} {l2:.0e}" + ("" if seed is None else f" seed {seed}")


def is_current(run: Run | None, of_ksd: bool, now: str) -> bool:
    """SciPy's methods do not change; a run of ksdmin is good for its commit."""
    return run is not None and (not of_ksd or (run["commit"] == now and "dirty" not in now))


class Runs:
    """The runs of all methods; those not in `folder` are the kept ones, of `results`."""

    def __init__(self, folder: Path, results: Path | None = None) -> None:
        self._runs = {}
        for method in (*KSD, *SCIPY):
            places = folder, RESULTS if results is None else results
            here, kept = (runs_of(method, place).runs for place in places)
            self._runs[method] = here or kept  # not both: seeds of two versions would mix

    def of(self, method: str, problem: Problem) -> list[Run]:
        """One run per seed."""
        return [run for run in self._runs[method] if (run["data"], run["l2"]) == problem]

    def cost(self, method: str, problem: Problem, gap: str, what: str = "passes") -> float:
        """Of the worst seed; infinite where one never gets there, nan where there is no run."""
        costs = [
            run["reached"].get(gap, {}).get(what, math.inf) for run in self.of(method, problem)
        ]
        return max(costs, default=math.nan)

    def cost_of_other(self, name: str, problem: Problem, gap: str, what: str = "passes") -> float:
        """Of another method than ours, with the better scale."""
        costs = [self.cost(method, problem, gap, what) for method in OTHERS[name]]
        return float(np.fmin.reduce(costs))

    def spent(self, name: str, problem: Problem, what: str) -> float:
        """What another method that never gets there has spent; infinite where it gave up."""
        runs = [run for method in OTHERS[name] for run in self.of(method, problem)]
        return min((run[what] for run in runs if run["message"] == USED_UP), default=math.inf)

    def ratio(
        self, name: str, problem: Problem, gap: str, what: str = "passes", method: str = "ksd"
    ) -> float:
        """Of `method`'s cost to the other's; nan where neither gets there, or one was not run.

        Where the other alone never gets there: to what it has spent, and zero if it gave up.
        """
        ours = self.cost(method, problem, gap, what)
        theirs = self.cost_of_other(name, problem, gap, what)
        if math.isinf(theirs):
            return math.nan if math.isinf(ours) else ours / self.spent(name, problem, what)
        return ours / theirs
