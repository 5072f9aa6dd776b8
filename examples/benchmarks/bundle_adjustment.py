"""Sparse and structured least squares: ksdmin beside SciPy's trf with lsmr.

    python examples/benchmarks/bundle_adjustment.py
    python examples/benchmarks/bundle_adjustment.py --only "pose graph" --out /tmp/tried.json
    python examples/benchmarks/bundle_adjustment.py --table

Bundle adjustments from 1e3 to 1e6 residuals, with noise and wrong matches, with a plain and a
robust loss, by a sparse Jacobian and by differences of its groups of columns; and four problems
of other structure, of which the last one was set aside. Both methods get the same functions; trf
scales by the Jacobian where there are columns to scale by. Each has the same time at most. The
cost to reach is the lowest one of trf's, and a millionth more: seconds of one processor until
then.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import one_thread  # noqa: F401
import scipy.optimize
import this_checkout  # noqa: F401
from scipy.sparse.linalg import LinearOperator

import ksdmin
from examples.benchmarks.structured_suite import others, scenes
from examples.benchmarks.structured_suite.others import Structured
from examples.benchmarks.structured_suite.tables import report
from examples.harness.provenance import provenance
from examples.harness.store import Store

RESULTS = Path(__file__).parent / "results" / "bundle_adjustment.json"
METHODS = ("ksdmin", "trf")


def adjustment(residuals: float, loss: str) -> Structured:
    """A bundle adjustment of about so many residuals."""
    made = scenes.scene(int(residuals))
    name = f"bundle adjustment, {made.residual_count} residuals"
    return Structured(name, made.residuals, made.jacobian, made.x0, loss)


def by_differences(residuals: float, loss: str) -> Structured:
    """The same without a Jacobian, by its pattern."""
    made = scenes.scene(int(residuals))
    name = f"bundle adjustment, {made.residual_count} residuals, jac_sparsity"
    return Structured(name, made.residuals, None, made.x0, loss, sparsity=made.sparsity)


PROBLEMS: dict[str, Callable[[], Structured]] = {
    **{
        f"adjustment {size} {loss}": lambda size=size, loss=loss: adjustment(float(size), loss)
        for size in ("1e3", "1e4", "1e5", "1e6")
        for loss in ("linear", "soft_l1")
    },
    "differences 1e5 linear": lambda: by_differences(1e5, "linear"),
    "pose graph": lambda: others.pose_graph(6000),
    "equation": lambda: others.source_of_equation(60),
    "blurred": lambda: others.blurred(20000),
    "matrix": lambda: others.completed_matrix(400),
}


class Clock:
    """Notes when a cost was reached, and ends a run whose time is up."""

    def __init__(self, limit: float) -> None:
        self._began, self._limit = time.perf_counter(), limit
        self.trace: list[tuple[float, float]] = []

    def __call__(self, intermediate_result: Any) -> None:
        """After an iteration."""
        seconds = time.perf_counter() - self._began
        self.trace.append((round(seconds, 4), float(intermediate_result.cost)))
        if seconds > self._limit:
            raise StopIteration


def run(problem: Structured, method: str, limit: float) -> dict[str, Any]:
    """One run, with its trace of seconds and costs."""
    options: dict[str, Any] = {"loss": problem.loss, "max_nfev": 10_000}
    jac = problem.jacobian or "2-point"
    if problem.sparsity is not None:
        options["jac_sparsity"] = problem.sparsity
    clock = Clock(limit)
    if method == "trf":
        operator = problem.sparsity is None and isinstance(jac(problem.x0), LinearOperator)
        options.update(method="trf", tr_solver="lsmr", x_scale=1.0 if operator else "jac")
        clock = Clock(limit)
        found = scipy.optimize.least_squares(
            problem.residuals, problem.x0, jac, callback=clock, **options
        )
    else:
        found = ksdmin.least_squares(problem.residuals, problem.x0, jac, callback=clock, **options)
    print(problem.name, problem.loss, method, clock.trace[-1], found.status, flush=True)
    return {
        "name": problem.name,
        "loss": problem.loss,
        "method": method,
        "unknowns": len(problem.x0),
        "residuals": len(found.fun),
        "cost": float(found.cost),
        "nfev": int(found.nfev),
        "njev": int(found.njev),
        "status": int(found.status),
        "limit": limit,
        "trace": clock.trace,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="print the table of kept runs")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--limit", type=float, default=150.0, help="seconds of a run at most")
    args = parser.parse_args()
    store = Store(args.out, ("problem", "method"))
    if not args.table:
        for name in args.only:
            problem = PROBLEMS[name]()
            made = [{"problem": name, **run(problem, each, args.limit)} for each in args.methods]
            store.replace([*store.runs, *made], {**store.head, **provenance("numpy", "scipy")})
    text = report(store.runs)
    if args.out == RESULTS and not args.table:
        RESULTS.with_suffix(".md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
