"""What the runs on sums of many samples show: KSD with its first sets and with larger ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from examples.benchmarks.regression_suite import large_sets
from examples.benchmarks.regression_suite.kept_runs import Problem, Runs, label
from examples.benchmarks.regression_suite.ratio_tables import count, origin, share
from examples.benchmarks.rule_variants.ratios import Ratios
from examples.harness.tables import markdown, number

GAP = "1e-06"
METHODS = ("ksd", "ksd-everything", "L-BFGS-B")
MEASURES = {"passes": "passes", "processor": "seconds"}  # wall time is disturbed by other work


def report(folder: Path, results: Path, l2s: Sequence[float]) -> str:
    """Everything, as Markdown."""
    runs = Runs(folder, results)
    problems = [(name, l2) for name in large_sets.SETS for l2 in l2s]
    known = [problem for problem in problems if all(runs.of(m, problem) for m in METHODS)]
    if not known:
        return "no runs"
    means = [mean(runs, known, other, what) for other in METHODS[1:] for what in MEASURES]
    return "\n\n".join([by_problem(runs, known), *means, origin(runs, known, "ksd")])


def by_problem(runs: Runs, known: list[Problem]) -> str:
    """Passes and seconds of all methods; of ours, the worst seed."""
    head = [f"to {GAP}", *(f"{what}, {name}" for what in MEASURES.values() for name in METHODS)]
    rows = []
    for problem in known:
        passes = [count(runs.cost(name, problem, GAP)) for name in METHODS]
        costs = [runs.cost(name, problem, GAP, "processor") for name in METHODS]
        seconds = [number(cost, ".3g", infinite="never") for cost in costs]
        rows.append([label(*problem), *passes, *seconds])
    return markdown(head, rows, numbers=True)


def mean(runs: Runs, known: list[Problem], other: str, what: str) -> str:
    """The mean ratio of ksd to another method, with its interval."""
    pairs = {
        (label(*problem), 0): (runs.cost("ksd", problem, GAP, what), theirs)
        for problem in known
        if (theirs := runs.cost(other, problem, GAP, what)) < float("inf")
    }
    found = Ratios(pairs)
    low, high = map(share, found.interval)
    name = MEASURES[what]
    return f"ksd / {other}, {name}: {share(found.mean)} [{low}, {high}] on {len(pairs)} problems."
