"""What the choice of steps costs: all kinds of step, and each kind alone, to the same accuracy.

    python examples/benchmarks/kinds.py --half tuned
    python examples/benchmarks/kinds.py --table

Sixteen small problems of all families, half of them set aside (kind_suite). A run ends after some
seconds of the processor; what counts is when it has come down to a share of what the best of all
runs of a problem has gained. One process, one thread.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import one_thread  # noqa: F401
import this_checkout  # noqa: F401

# isort: split
import numpy as np

import ksdmin
from examples.benchmarks.kind_suite.problems import HALVES, made
from examples.harness.provenance import provenance
from examples.harness.store import Run, Store
from examples.harness.tables import markdown, number, origins

RESULT = Path(__file__).parent / "results" / "kinds.json"
IDENTITY = ("problem", "method", "seed", "seconds")
ALONE = ("krylov", "newton", "quasi-newton", "gauss-newton")
METHODS = {"all kinds": (), **{kind: tuple(k for k in ALONE if k != kind) for kind in ALONE}}
SHARES = (1e-2, 1e-4)
POINTS = 200


def perform(problem: str, method: str, seed: int, seconds: float) -> Run | None:
    """One run: its values against passes and seconds; None where the kind cannot be had."""
    options = {"without": METHODS[method], "gtol": 1e-8, "maxiter": 20_000}
    solver = ksdmin.Solver(**made(problem, seed), options=options, rng=seed)
    began, rows = time.process_time(), []
    try:
        for info in solver:
            spent = time.process_time() - began
            rows.append((float(info.fun), float(info.record.passes), round(spent, 4)))
            if spent > seconds:
                break
    except ValueError as error:
        if "no kind of step is left" in str(error):
            return None
        raise
    value, passes, clock = (np.array(column) for column in zip(*lowest(rows), strict=True))
    kept = np.unique(np.linspace(0, len(value) - 1, POINTS).astype(int))
    trace = {"value": value[kept], "passes": passes[kept], "seconds": clock[kept]}
    return {
        "kinds": solver.result().kinds,
        **{name: [float(f"{v:.8g}") for v in column] for name, column in trace.items()},
    }


def lowest(rows: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """The rows that are lower than all before them."""
    kept: list[tuple[float, ...]] = []
    for row in rows:
        if not kept or row[0] < kept[-1][0]:
            kept.append(row)
    return kept


# --- Tables ---


def reached(run: Run, level: float, column: str) -> float:
    """When a run has come down to a level."""
    at = [i for i, value in enumerate(run["value"]) if value <= level]
    return run[column][at[0]] if at else math.inf


def regret(runs: Sequence[Run], share: float, column: str) -> tuple[list[str], float]:
    """For each method, when it was there; and all kinds / the best kind alone."""
    best = min(min(run["value"]) for run in runs)
    level = best + share * (max(run["value"][0] for run in runs) - best)
    of = {run["method"]: reached(run, level, column) for run in runs}
    alone = min((v for name, v in of.items() if name != "all kinds"), default=math.inf)
    together = of.get("all kinds", math.inf)
    ratio = together / alone if together < math.inf else math.inf
    return [number(of.get(name, math.nan), ".3g") for name in METHODS], ratio


def report(runs: Sequence[Run]) -> str:
    parts = []
    for half, problems in HALVES.items():
        for column in ("passes", "seconds"):
            rows, ratios = [], []
            for problem in problems:
                of_problem = [run for run in runs if run["problem"] == problem]
                for share in SHARES if of_problem else ():
                    cells, ratio = regret(of_problem, share, column)
                    ratios.append(ratio)
                    rows.append([problem, f"{share:g}", *cells, number(ratio, ".2f")])
            if rows:
                middle = f"median {np.median(ratios):.2f}, worst {max(ratios):.2f}"
                header = ["problem", "share left", *METHODS, "all / best alone"]
                parts += [f"{half}, {column}: {middle}", markdown(header, rows, numbers=True)]
    return "\n\n".join([*parts, origins(runs, "{commit}, {date}, {hardware}")])


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=(*HALVES, "all"), default="all")
    parser.add_argument("--problems", nargs="+", metavar="NAME")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--table", action="store_true", help="show what is there, run nothing")
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args(given)
    store = Store(arguments.out, IDENTITY)
    halves = HALVES if arguments.half == "all" else [arguments.half]
    names = arguments.problems or [name for half in halves for name in HALVES[half]]
    warnings.simplefilter("ignore")
    for problem in () if arguments.table else names:
        for method in METHODS:
            which = {"problem": problem, "method": method, "seed": arguments.seed}
            which["seconds"] = arguments.seconds
            found = None if store.find(**which) else perform(**which)
            if found is not None:
                store.add({**which, **found, **provenance("torch")})
                print(problem, method, f"{min(found['value']):.8g}", found["kinds"], flush=True)
    print(report(store.runs))


if __name__ == "__main__":
    main()
