"""The tables of the benchmark of seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from examples.benchmarks.cheap_functions.families import HALVES
from examples.benchmarks.comparison.timed_functions import TARGET
from examples.benchmarks.comparison.timed_runs import COLLECTIONS, METHODS
from examples.harness.store import Run
from examples.harness.tables import markdown, median, number, origins

KSD = "ksd"
ELSEWHERE = 0.01  # of the reduction
BANDS = ((2, 100), (101, 20_000), (20_001, 200_000))  # of n, in the summary
Runs = dict[str, Run]  # by method


def by_problem(runs: Iterable[Run], collection: str) -> list[Runs]:
    """The runs of each problem, by method."""
    found: dict[tuple, Runs] = {}
    for run in runs:
        if run["collection"] == collection:
            found.setdefault((run["problem"], run["size"]), {})[run["method"]] = run
    return [found[at] for at in sorted(found, key=lambda at: (at[0], at[1] or 0))]


def elsewhere(run: Run, of: Runs) -> bool:
    """Whether a run ended clearly above the best: at another minimum, or on a plateau."""
    best = min(other["f"] for other in of.values() if other["reached"])
    return run["f"] - best > ELSEWHERE * (run["f0"] - best)


def one(of: Runs) -> Run:
    return next(iter(of.values()))


def seconds(run: Run | None) -> float:
    """Up to the target; infinite where it was not reached, nan where nothing was run."""
    if run is None:
        return math.nan
    return run["seconds"] if run["reached"] else math.inf


def ratio(of: Runs) -> float:
    """KSD's seconds over the best of the others'; nan where none of these reached the target."""
    others = [seconds(run) for method, run in of.items() if method != KSD]
    best = min((s for s in others if math.isfinite(s)), default=math.nan)
    return seconds(of.get(KSD)) / best


def cell(of: Runs, method: str) -> str:
    """Seconds, and values / gradients / products."""
    run = of.get(method)
    if run is None:
        return ""
    if not run["reached"]:
        return "–"
    mark = "*" if elsewhere(run, of) else ""
    return f"{run['seconds']:.3g}{mark} ({run['nf']} / {run['ng']} / {run['nh']})"


def details(collection: str, problems: Sequence[Runs]) -> str:
    methods = METHODS[collection]
    header = ["problem", "n", "half", *(m.removesuffix("-tight") for m in methods), "ratio"]
    rows = [
        [one(of)["problem"], f"{one(of)['n'] or ''}", one(of)["half"]]
        + [cell(of, method) for method in methods]
        + [shown(ratio(of))]
        for of in problems
    ]
    return markdown(header, rows)


def shown(value: float) -> str:
    return number(value, ".2f", missing="", infinite="∞")


def summary_row(name: str, problems: Sequence[Runs]) -> list[str]:
    ratios = [value for of in problems if not math.isnan(value := ratio(of))]
    count = f"{len(ratios)}/{len(problems)}"
    worst = max(ratios, default=math.nan)
    missed = sum(math.isinf(value) for value in ratios)
    within = sum(value <= 4 for value in ratios)
    return [name, count, shown(median(ratios)), shown(worst), f"{within}", f"{missed}"]


def summary(problems: Sequence[Runs]) -> str:
    """By half, and by size."""
    rows = []
    for half in HALVES:
        members = [of for of in problems if one(of)["half"] == half]
        rows.append(summary_row(half, members))
        for low, high in BANDS:
            band = [of for of in members if low <= (one(of)["n"] or 0) <= high]
            if band and len(band) < len(members):
                rows.append(summary_row(f"{half}, n = {low:,} to {high:,}", band))
    header = ("problems", "compared", "median", "worst", "at most 4", "missed by KSD")
    return markdown(header, rows, numbers=True)


def report(runs: Sequence[Run]) -> str:
    parts = []
    for collection in COLLECTIONS:
        if problems := by_problem(runs, collection):
            parts += [f"**{collection}**", summary(problems), details(collection, problems)]
    parts.append(
        "Seconds of the processor in one thread (values / gradients / products) up to the first "
        f"gradient of at most {TARGET:g} of the first one, largest magnitudes; of short runs the "
        "least of several; –: not reached; *: at a value that is more than 1% of the reduction "
        "above the best, and compared all the same. The ratio is KSD's seconds over those of the "
        "best of the others. Problems that none of them solves are not compared; the ratio of one "
        "that only KSD misses is infinite."
    )
    parts.append(f"Measured on {origins(runs, '{hardware}, {date}, {commit}')}.")
    return "\n\n".join(parts)
