"""What the runs on sums of losses show, for each kind and each half."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from examples.benchmarks.regression_suite import loss_sets
from examples.benchmarks.regression_suite.kept_runs import Problem, Runs, label
from examples.benchmarks.regression_suite.ratio_tables import count, origin, share, worst
from examples.harness.tables import markdown, median

GAP = "1e-06"
OTHER = "L-BFGS-B"
MEASURES = ("passes", "processor")  # wall time is disturbed on a shared machine


def report(folder: Path, results: Path, l2s: Sequence[float], method: str = "ksd") -> str:
    """Everything, as Markdown."""
    runs = Runs(folder, results)
    known = [(name, l2) for name in loss_sets.SETS for l2 in l2s if runs.of(method, (name, l2))]
    if not known:
        return f"no runs of {method}"
    parts = [by_kind(runs, known, method), by_problem(runs, known, method)]
    return "\n\n".join([*parts, origin(runs, known, method)])


def by_kind(runs: Runs, known: list[Problem], method: str) -> str:
    """The median and the worst ratio of each kind and of all."""
    names = ["passes, median", "worst", "seconds, median", "worst"]
    head = [f"{method} / {OTHER} to {GAP}", *names, "problems"]
    rows = []
    for half in loss_sets.HALVES:
        for kind in (*loss_sets.KINDS, None):
            chosen = loss_sets.names(half, kind)
            problems = [problem for problem in known if problem[0] in chosen]
            if problems:
                title = f"{half}, {kind}" if kind else f"**{half}, all**"
                rows.append([title, *summary(runs, problems, method), str(len(problems))])
    return markdown(head, rows, numbers=True)


def summary(runs: Runs, problems: list[Problem], method: str) -> list[str]:
    """The median and the worst ratio, of passes and of seconds."""
    found = []
    for what in MEASURES:
        ratios = [runs.ratio(OTHER, problem, GAP, what, method) for problem in problems]
        found += [share(median(ratios)), share(worst(ratios))]
    return found


def by_problem(runs: Runs, known: list[Problem], method: str) -> str:
    """Passes and seconds of both methods; of ours, the worst seed."""
    head = [
        f"to {GAP}",
        *(f"{what}, {name}" for what in ("passes", "seconds") for name in (method, OTHER)),
        "ratio of passes",
    ]
    rows = []
    for problem in known:
        costs = [
            find(name, problem, GAP, what)
            for what in MEASURES
            for find, name in ((runs.cost, method), (runs.cost_of_other, OTHER))
        ]
        ratio = runs.ratio(OTHER, problem, GAP, "passes", method)
        shown = [*map(count, costs[:2]), *(f"{cost:.3g}" for cost in costs[2:])]
        rows.append([label(*problem), *shown, share(ratio)])
    return markdown(head, rows, numbers=True)
