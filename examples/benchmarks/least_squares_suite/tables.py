"""What the runs come to: a table for each set."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from examples.benchmarks.least_squares_suite import (
    more_garbow_hillstrom,
    nist,
    other_residuals,
    robust_and_bounded,
)
from examples.benchmarks.least_squares_suite.fits import Fit
from examples.benchmarks.least_squares_suite.runs import METHODS, MORE_DIGITS, SOLVED
from examples.harness.tables import markdown

Run = dict[str, Any]

# The fits of a set, whether solvers get the Jacobian, and a title.
SETS: dict[str, tuple[Callable[[], list[Fit]], bool, str]] = {
    "nist": (nist.fits, True, "NIST, exact Jacobian"),
    "nist-values": (nist.fits, False, "NIST, without a Jacobian"),
    "mgh": (more_garbow_hillstrom.fits, True, "Moré, Garbow and Hillstrom, MINPACK's driver"),
    "others": (lambda: other_residuals.fits(0), True, "Other sums of squares"),
    "set-aside": (lambda: other_residuals.fits(1), True, "Other sums of squares, set aside"),
    "robust": (robust_and_bounded.robust, True, "Outliers, robust losses"),
    "bounds": (robust_and_bounded.bounded, True, "A bound that holds"),
}
BY_COST = ("others", "set-aside", "robust", "bounds")  # the best that any method finds counts


def report(runs: Sequence[Run]) -> str:
    """All tables, as far as there are runs."""
    parts = []
    for name, (_, _, title) in SETS.items():
        own = [run for run in runs if run["set"] == name]
        if own:
            parts.append(f"### {title}\n\n{table(name, own)}")
    return "\n\n".join(parts)


def table(name: str, runs: Sequence[Run]) -> str:
    """Of one set: counts are those of all runs; ratios are medians where both solve it."""
    by_method = {
        method: {run["problem"]: run for run in runs if run["method"] == method}
        for method in METHODS
    }
    best = {
        problem: min(own[problem].get("cost", float("inf")) for own in by_method.values() if own)
        for problem in next(iter(by_method.values()))
    }

    def digits(run: Run) -> float:
        if name not in BY_COST:
            return run["digits"]
        cost, least = run.get("cost", float("inf")), best[run["problem"]]
        return MORE_DIGITS if cost <= least * (1 + 1e-6) + 1e-18 else 0.0

    rows = []
    reference = by_method["trf" if name == "bounds" or name == "robust" else "lm"]
    for method, own in by_method.items():
        if not own:
            continue
        both = [
            (run, reference[problem])
            for problem, run in own.items()
            if digits(run) >= SOLVED and digits(reference[problem]) >= SOLVED
        ]
        rows.append(
            [
                method,
                str(sum(digits(run) >= SOLVED for run in own.values())),
                str(sum(digits(run) >= MORE_DIGITS for run in own.values())),
                str(sum(run["success"] and digits(run) < SOLVED for run in own.values())),
                *(f"{sum(run[kind] for run in own.values()):,}" for kind in ("nfev", "njev")),
                *(ratio(both, kind) for kind in ("nfev", "njev", "seconds")),
            ]
        )
    beside = "trf" if reference is by_method["trf"] else "lm"
    wrong = "success, higher" if name in BY_COST else "success, wrong"
    header = ["method", f"solved of {len(best)}", "6 digits", wrong, "residuals"]
    header += ["Jacobians", *(f"{what} / {beside}" for what in ("residuals", "Jacobians"))]
    return markdown([*header, f"seconds / {beside}"], rows, numbers=True)


def ratio(pairs: Sequence[tuple[Run, Run]], kind: str) -> str:
    """The median ratio of a count."""
    known = [one[kind] / other[kind] for one, other in pairs if other[kind]]
    return f"{statistics.median(known):.2f}" if known else ""
