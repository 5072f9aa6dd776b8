"""What the runs show, against what is asked of them (ratios; the worst seed counts)."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from examples.benchmarks.regression_suite import store
from examples.benchmarks.regression_suite.solver_runs import KSD, SCIPY, TARGETS, USED_UP
from examples.harness.tables import markdown, median, number, origins

GAPS = [f"{target:.0e}" for target in TARGETS]
ASKED = GAPS[1:]  # the requirements are for these
RIVALS = {  # of a rival with two scales of the objective, the better one at each problem
    "L-BFGS-B": ("L-BFGS-B",),
    "Newton-CG": ("Newton-CG", "Newton-CG-sum"),
    "trust-krylov": ("trust-krylov", "trust-krylov-sum"),
}
Problem = tuple[str, float]


def line(method: str, data: str, l2: float, seed: int | None, run: dict) -> str:
    """One run in one line."""
    passes = [f"{gap} {run['reached'].get(gap, {}).get('passes', 'never')}" for gap in GAPS]
    spent = " ".join(f"{name} {run[name]:g}" for name in "ABC" if name in run)
    return (
        f"{method} {store.key(data, l2, seed)}: passes {', '.join(passes)}; {run['seconds']:.1f} s,"
        f" |g| {run['gradient']:.1e}, {'converged' if run['success'] else run['message']} {spent}"
    )


class Runs:
    """The runs of all methods; those not in `folder` are the kept ones."""

    def __init__(self, folder: Path) -> None:
        self._runs = {}
        for method in (*KSD, *SCIPY):
            kept = store.read(store.RESULTS / f"{method}.json")
            here = store.read(folder / f"{method}.json")
            self._runs[method] = here or kept  # not both: seeds of two versions would mix

    def of(self, method: str, problem: Problem) -> list[dict]:
        """One run a seed."""
        start = store.key(*problem)
        runs = self._runs[method].items()
        return [run for name, run in runs if name == start or name.startswith(f"{start} seed")]

    def cost(self, method: str, problem: Problem, gap: str, what: str = "passes") -> float:
        """Of the worst seed; infinite where one never arrives, nan where there is no run."""
        costs = [
            run["reached"].get(gap, {}).get(what, math.inf) for run in self.of(method, problem)
        ]
        return max(costs, default=math.nan)

    def rival(self, name: str, problem: Problem, gap: str, what: str = "passes") -> float:
        """Of the better scale."""
        costs = [self.cost(method, problem, gap, what) for method in RIVALS[name]]
        return float(np.fmin.reduce(costs))

    def spent(self, name: str, problem: Problem, what: str) -> float:
        """What a rival that has never arrived has spent for it; infinite where it gave up."""
        runs = [run for method in RIVALS[name] for run in self.of(method, problem)]
        return min((run[what] for run in runs if run["message"] == USED_UP), default=math.inf)

    def ratio(
        self, name: str, problem: Problem, gap: str, what: str = "passes", method: str = "ksd"
    ) -> float:
        """Of `method`'s cost to the rival's; nan where neither arrives, or one was not run.

        Where the rival alone never arrives: to what it has spent, and zero if it gave up.
        """
        ours, theirs = self.cost(method, problem, gap, what), self.rival(name, problem, gap, what)
        if math.isinf(theirs):
            return math.nan if math.isinf(ours) else ours / self.spent(name, problem, what)
        return ours / theirs


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
    columns = [method, "ksd-paper", *RIVALS]
    head = ["passes to the gap", *(f"{name} {gap}" for gap in GAPS for name in columns)]

    def cost(name: str, problem: Problem, gap: str) -> float:
        find = runs.rival if name in RIVALS else runs.cost
        return find(name, problem, gap)

    rows = [
        [store.key(*problem), *(count(cost(c, problem, gap)) for gap in GAPS for c in columns)]
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
    names = [f"{what} / {rival} {gap}" for gap in ASKED for rival, what in COMPARED]
    found = np.array(
        [
            [runs.ratio(rival, p, gap, what, method) for gap in ASKED for rival, what in COMPARED]
            for p in problems
        ]
    )
    rows = [[store.key(*p), *map(share, row)] for p, row in zip(problems, found, strict=True)]
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
        rows.append([store.key(*problem), *spent])
    return markdown(head, rows, numbers=True)


def verdicts(runs: Runs, problems: list[Problem], method: str) -> str:
    """Each requirement, and whether it holds."""

    def all_ratios(rival: str, what: str) -> np.ndarray:
        return np.array([runs.ratio(rival, p, g, what, method) for p in problems for g in ASKED])

    to_lbfgsb, seconds = all_ratios("L-BFGS-B", "passes"), all_ratios("L-BFGS-B", "seconds")
    processor = all_ratios("L-BFGS-B", "processor")
    lines = [
        verdict("median passes / L-BFGS-B's", median(to_lbfgsb), 1 / 5),
        verdict("worst passes / L-BFGS-B's", worst(to_lbfgsb), 1),
        verdict("median wall time / L-BFGS-B's", median(seconds), 1 / 3),
        verdict("median processor time (wall time undisturbed)", median(processor), 1 / 3),
    ]
    for rival in ("Newton-CG", "trust-krylov"):
        found = all_ratios(rival, "passes")
        lines.append(verdict(f"median passes / {rival}'s", median(found), 1 / 2))
        lines.append(verdict(f"worst passes / {rival}'s", worst(found), 1 / 2))
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
