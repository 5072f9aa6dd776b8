"""What the runs show, against what is asked of them (ratios; the worst seed counts)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from examples.benchmarks.regression_suite.gap_recorder import TARGETS
from examples.benchmarks.regression_suite.kept_runs import OTHERS, Problem, Runs, label
from examples.harness.store import Run
from examples.harness.tables import markdown, median, number, origins

GAPS = [f"{target:.0e}" for target in TARGETS]
ASKED = GAPS[1:]  # the requirements are for these


def line(method: str, run: Run) -> str:
    """One run in one line."""
    problem = label(run["data"], run["l2"], run["seed"])
    passes = [f"{gap} {run['reached'].get(gap, {}).get('passes', 'never')}" for gap in GAPS]
    spent = " ".join(f"{name} {run[name]:g}" for name in "ABC" if name in run)
    return (
        f"{method} {problem}: passes {', '.join(passes)}; {run['seconds']:.1f} s,"
        f" |g| {run['gradient']:.1e}, {'converged' if run['success'] else run['message']} {spent}"
    )


def report(folder: Path, data: list[str], l2s: list[float], method: str = "ksd") -> str:
    """Everything, as Markdown."""
    runs = Runs(folder)
    problems = [(name, l2) for name in data for l2 in l2s if runs.of(method, (name, l2))]
    if not problems:
        return f"no runs of {method}"
    parts = [passes(runs, problems, method), ratios(runs, problems, method)]
    parts += [spending(runs, problems, method), verdicts(runs, problems, method)]
    return "\n\n".join([*parts, origin(runs, problems, method)])


def passes(runs: Runs, problems: list[Problem], method: str) -> str:
    """Passes to each gap."""
    columns = [method, "ksd-paper", *OTHERS]
    head = ["passes to the gap", *(f"{name} {gap}" for gap in GAPS for name in columns)]

    def cost(name: str, problem: Problem, gap: str) -> float:
        find = runs.cost_of_other if name in OTHERS else runs.cost
        return find(name, problem, gap)

    rows = [
        [label(*problem), *(count(cost(c, problem, gap)) for gap in GAPS for c in columns)]
        for problem in problems
    ]
    return markdown(head, rows, numbers=True)


COMPARED = [
    ("L-BFGS-B", "passes"),
    ("L-BFGS-B", "seconds"),
    ("L-BFGS-B", "processor"),
    ("Newton-CG", "passes"),
    ("trust-krylov", "passes"),
]


def ratios(runs: Runs, problems: list[Problem], method: str) -> str:
    """Of each problem, and their median and worst."""
    names = [f"{what} / {other} {gap}" for gap in ASKED for other, what in COMPARED]
    found = np.array(
        [
            [runs.ratio(other, p, gap, what, method) for gap in ASKED for other, what in COMPARED]
            for p in problems
        ]
    )
    rows = [[label(*p), *map(share, row)] for p, row in zip(problems, found, strict=True)]
    rows.append(["**median**", *(share(median(column)) for column in found.T)])
    rows.append(["**worst**", *(share(worst(column)) for column in found.T)])
    return markdown(["ratio of ksd's", *names], rows, numbers=True)


def count(cost: float) -> str:
    return number(cost, ",.0f", infinite="never")


def share(ratio: float) -> str:
    return number(ratio, ".2f", infinite="never")


def worst(column: np.ndarray) -> float:
    return float(np.fmax.reduce(column))


def spending(runs: Runs, problems: list[Problem], method: str) -> str:
    """Where the passes go: the seed that needs the most of them to the last gap."""
    head = ["where passes go, to 1e-09", "iterations", "A gradients", "B products", "C search"]
    rows = []
    for problem in problems:
        arrived = [run["reached"].get(GAPS[-1], run) for run in runs.of(method, problem)]
        run = max(arrived, key=lambda run: run["passes"])
        spent = [f"{run[name]:,.0f}" for name in ("nit", "A", "B", "C")]
        rows.append([label(*problem), *spent])
    return markdown(head, rows, numbers=True)


def verdicts(runs: Runs, problems: list[Problem], method: str) -> str:
    """Each requirement, and whether it holds."""

    def all_ratios(other: str, what: str) -> np.ndarray:
        return np.array([runs.ratio(other, p, g, what, method) for p in problems for g in ASKED])

    to_lbfgsb, seconds = all_ratios("L-BFGS-B", "passes"), all_ratios("L-BFGS-B", "seconds")
    processor = all_ratios("L-BFGS-B", "processor")
    lines = [
        verdict("median passes / L-BFGS-B's", median(to_lbfgsb), 1 / 5),
        verdict("worst passes / L-BFGS-B's", worst(to_lbfgsb), 1),
        verdict("median wall time / L-BFGS-B's", median(seconds), 1 / 3),
        verdict("median processor time (wall time undisturbed)", median(processor), 1 / 3),
    ]
    for other in ("Newton-CG", "trust-krylov"):
        found = all_ratios(other, "passes")
        lines.append(verdict(f"median passes / {other}'s", median(found), 1 / 2))
        lines.append(verdict(f"worst passes / {other}'s", worst(found), 1 / 2))
    ended = [run for problem in problems for run in runs.of(method, problem)]
    failed = sum(not run["success"] for run in ended)
    holds = "HOLDS" if not failed else "FAILS"
    lines.append(f"- {holds}: the whole gradient's test is met in {len(ended) - failed} of")
    lines[-1] += f" {len(ended)} runs"
    return "\n".join(lines)


def verdict(what: str, found: float, limit: float) -> str:
    holds = "HOLDS" if found <= limit else "FAILS"
    return f"- {holds}: {what} {share(found)}, at most {limit:.2f} asked"


def origin(runs: Runs, problems: list[Problem], method: str) -> str:
    """When, where and with which commits."""
    ended = [run for problem in problems for run in runs.of(method, problem)]
    return origins(ended, "{date}, commit {commit}, {hardware}")
