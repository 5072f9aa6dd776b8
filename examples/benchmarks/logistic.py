"""Logistic and softmax regressions of 50 to 1,000 unknowns: KSD beside scikit-learn's solvers.

    python examples/benchmarks/logistic.py run            # those that KSD was developed on
    python examples/benchmarks/logistic.py run --held-out
    python examples/benchmarks/logistic.py table > examples/benchmarks/results/logistic.md

The objective is the mean loss + l2 / 2 |w|^2 without an intercept, from w = 0, for all the same.
Each solver goes on until the largest magnitude in the gradient, computed here, is at most 1e-6. The
seconds are processor time with one thread, the least of three repetitions.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import one_thread  # noqa: F401
import this_checkout  # noqa: F401
import torch

from examples.benchmarks.logistic_suite import solvers
from examples.benchmarks.logistic_suite.data_sets import DEVELOPED_ON, HELD_OUT, SETS
from examples.benchmarks.logistic_suite.objective import objective
from examples.harness.provenance import provenance
from examples.harness.store import Run, Store
from examples.harness.tables import markdown, median, number

RESULTS = Path(__file__).parent / "results/logistic.json"
GTOL = 1e-6
L2 = (1e-3, 1e-5)
OURS = ("ksd", "ksd, from_torch", "ksd without newton")


def run(names: list[str], store: Store) -> None:
    """Run all solvers on some data sets, and keep what they did."""
    origin = provenance("numpy", "scipy", "scikit-learn", "torch")
    for name in names:
        X, y = SETS[name]()
        for l2 in L2:
            problem = objective(X, y, l2)
            outcomes = {
                "ksd": solvers.by_ksd(problem, GTOL),
                "ksd, from_torch": solvers.by_torch(problem, GTOL),
                "ksd without newton": solvers.by_ksd(problem, GTOL, ("newton",)),
                **{one: solvers.by_sklearn(problem, GTOL, one) for one in solvers.BY_SKLEARN},
            }
            sizes = {"data": name, "l2": l2, "samples": len(X), "unknowns": problem.n}
            runs = {solver: plain(found) for solver, found in outcomes.items() if found}
            store.add({**sizes, "solvers": runs, **origin})
            print(name, l2, {solver: found["seconds"] for solver, found in runs.items()})


def plain(outcome: solvers.Outcome) -> solvers.Outcome:
    """An outcome as JSON has it: None where the gradient was not reached."""
    finite = math.isfinite(outcome["seconds"])
    return {**outcome, "seconds": round(outcome["seconds"], 5) if finite else None}


def ratio(kept: Run, ours: str) -> float:
    """The seconds of one of our runs in those of scikit-learn's best; inf where not reached."""
    by = kept["solvers"]
    best = min(_seconds(by[one]) for one in solvers.BY_SKLEARN if one in by)
    return _seconds(by[ours]) / best


def _seconds(outcome: solvers.Outcome) -> float:
    return math.inf if outcome["seconds"] is None else outcome["seconds"]


def table(runs: list[Run]) -> str:
    """Milliseconds of all, and the ratios; below, their medians and the worst."""
    columns = [*OURS, *solvers.BY_SKLEARN]
    header = ["data", "samples", "unknowns", "l2", *columns]
    header += ["ksd: iterations, matrices, passes", "ksd / best", "from_torch / best"]
    rows = [_row(kept, columns) for kept in runs]
    return markdown(header, rows, numbers=True) + "\n\n" + summary(runs)


def _row(kept: Run, columns: list[str]) -> list[str]:
    by = kept["solvers"]
    times = [number(1e3 * _seconds(by[c]), ".3g") if c in by else "" for c in columns]
    own = by["ksd"]
    counts = f"{own['iterations']}, {own['matrices']}, {own['passes']:.3g}"
    sizes = [kept["data"], f"{kept['samples']:,}", f"{kept['unknowns']:,}", f"{kept['l2']:g}"]
    ratios = [number(ratio(kept, ours), ".2f") for ours in OURS[:2]]
    return [*sizes, *times, counts, *ratios]


def summary(runs: list[Run]) -> str:
    """The median and the worst ratio, on either half."""
    rows = []
    for half, names in {"developed on": DEVELOPED_ON, "held out": HELD_OUT}.items():
        chosen = [kept for kept in runs if kept["data"] in names]
        for ours in OURS:
            ratios = [ratio(kept, ours) for kept in chosen]
            if ratios:
                numbers = [number(one(ratios), ".2f") for one in (median, max)]
                rows.append([half, ours, str(len(ratios)), *numbers])
    return markdown(["half", "solver", "runs", "median ratio", "worst"], rows, numbers=True)


def main() -> None:
    """Run, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--data", nargs="+", choices=list(SETS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    store = Store(given.out, ["data", "l2"])
    if given.command == "table":
        print(table(store.runs))
        return
    torch.set_num_threads(1)
    run(given.data or list(HELD_OUT if given.held_out else DEVELOPED_ON), store)


if __name__ == "__main__":
    main()
