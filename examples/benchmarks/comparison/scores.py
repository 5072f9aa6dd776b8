"""From runs to scores: which targets were reached, with how much work.

Two targets. By gradient: |g| <= 1e-5 max(1, |g0|), largest magnitudes, at a point whose gradient
was asked for (with bounds: the projected gradient, at a point in the box). By value: f <= f* +
1e-6 (f0 - f*), where f* is the lowest value that any run of any method ever saw.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from examples.benchmarks.comparison import pooled_runs, problem_sets, solvers
from examples.benchmarks.comparison.pooled_runs import IDENTITY
from examples.harness.store import Run, Store

VALUE = 1e-6
UNBOUNDED = -1e15  # a problem where any run went below this has no solution, and counts nowhere
GTOL = 1e-5 * (1 + 1e-9)  # what success of ksd promises, and rounding
COLUMNS = (
    *("problem", "success", "message", "nf", "ng", "nh", "seconds", "inside", "f", "g"),
    *("gradient_work", "gradient_seconds", "value_work", "outside", "farthest"),
)
TIMES = ("seconds", "inside", "gradient_seconds")
ABOUT = ("problem", "n", "half", "f0", "g0", "best")  # what is the same for all methods


@dataclass
class Scores:
    """All runs of a collection: `runs[tag][problem]`, and what is known about the problems."""

    collection: str
    cache: Path
    runs: dict[str, dict[str, dict]] = field(default_factory=dict)
    heads: dict[str, dict] = field(default_factory=dict)
    about: dict[str, dict] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The problems that all tags have run, and that have a minimum."""
        first, *others = self.runs.values()
        shared = [name for name in first if all(name in other for other in others)]
        return [name for name in shared if self.about[name]["best"] > UNBOUNDED]

    def subset(self, half: str) -> list[str]:
        return [name for name in self.names if half in ("all", self.about[name]["half"])]


def stored(collection: str) -> Path:
    return problem_sets.RESULTS / collection


def about_store(collection: str) -> Store:
    """What is known about the problems."""
    return Store(stored(collection) / "problems.json", IDENTITY)


def load(collection: str, tags: list[str] | None, cache: Path) -> Scores:
    """The runs under these tags (None: all methods), from the cache or else from the results."""
    scores = Scores(collection, cache)
    scores.about = by_problem(about_store(collection))
    for tag in tags or dict.fromkeys(solvers.UNCONSTRAINED + solvers.BOUNDED):
        raw = pooled_runs.cached(collection, tag, cache)
        found = raw if raw.runs else Store(stored(collection) / f"{tag}.json", IDENTITY)
        if found.runs:
            scores.heads[tag] = found.head
            scores.runs[tag] = {name: rounded(run) for name, run in by_problem(found).items()}
        elif tags:
            raise SystemExit(f"no runs of {tag!r} over {collection}: run them first")
    if not scores.runs:
        raise SystemExit(f"no runs over {collection} yet")
    describe(scores)
    return scores


def by_problem(store: Store) -> dict[str, Run]:
    return {run["problem"]: run for run in store.runs}


def rounded(run: Run) -> Run:
    """With seconds of four digits, as they are stored, so that stored runs give the same table.

    Values decide about targets, and are kept as they are.
    """
    known = {key: run[key] for key in TIMES if run[key] is not None}
    return run | {key: float(f"{seconds:.4g}") for key, seconds in known.items()}


def describe(scores: Scores) -> None:
    """Fill `about` with the best values known, and the runs with `value_work`."""
    best = by_problem(pooled_runs.best_values(scores.collection, scores.cache))
    raw = [run for of_tag in scores.runs.values() for run in of_tag.values() if "trace" in run]
    for run in raw:
        name = run["problem"]
        about = scores.about.setdefault(name, {"problem": name, "best": np.inf})
        about |= {key: run[key] for key in ("n", "f0", "g0")}
        about["half"] = problem_sets.half(name)
        about["best"] = min(about["best"], run["best"], best.get(name, run)["best"])
    for run in raw:
        run["value_work"] = value_work(run, scores.about[run["problem"]])


def value_target(about: dict) -> float:
    return about["best"] + VALUE * (about["f0"] - about["best"])


def value_work(run: dict, about: dict) -> int | None:
    target = value_target(about)
    return next((work for work, value in run["trace"] if value <= target), None)


def gradient_target(about: dict) -> float:
    return problem_sets.TARGET * max(1.0, about["g0"])


def false_success(run: dict, about: dict) -> bool:
    """Success is claimed for a point that meets neither target."""
    met = run["g"] <= gradient_target(about) or run["f"] <= value_target(about)
    return run["success"] and not met


def broken_promise(run: dict) -> bool:
    """Success of ksd says that the gradient is below gtol, whatever it was at the start."""
    return run["success"] and not run["g"] <= GTOL


def write(scores: Scores) -> None:
    """The small files that are committed: one about the problems, one per method."""
    about_store(scores.collection).replace(scores.about.values(), {"columns": ABOUT})
    for tag, of_tag in scores.runs.items():
        store = Store(stored(scores.collection) / f"{tag}.json", IDENTITY)
        store.replace(of_tag.values(), scores.heads[tag] | {"columns": COLUMNS})
