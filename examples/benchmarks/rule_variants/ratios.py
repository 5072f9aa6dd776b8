"""Runs of a variant against those of the default, with intervals, and the tables.

A ratio is that of the variant to the default, above 1 where the default is better: the geometric
mean over the problems of those of its seeds, on what both have run and solved. Its interval is the
bootstrap's, 95%, over the problems.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from examples.benchmarks.rule_variants.constants import COUNTED
from examples.benchmarks.rule_variants.variants import CONTROL, DEFAULT, REFERENCE
from examples.harness.store import Run, Store
from examples.harness.tables import markdown

Key = tuple[str, str, str]  # rule, constant, value
TaskKey = tuple[str, int]  # problem, seed
Results = dict[TaskKey, list[float | None]]  # for each task, its measures
BASIC: Key = (DEFAULT, "", "")
DRAWS, LEVEL = 2000, 0.95


@dataclass(frozen=True)
class Ratios:
    """What a variant takes, of what the default takes, on the tasks that both have run.

    Attributes
    ----------
    pairs : mapping
        Task: the variant's number and the default's; None where it has not solved it.
    """

    pairs: Mapping[TaskKey, tuple[float | None, float | None]]

    @cached_property
    def logs(self) -> np.ndarray:
        """For each problem, the mean over its seeds."""
        known: dict[str, list[float]] = {}
        for (name, _), (a, b) in self.pairs.items():
            if a is not None and b is not None:
                known.setdefault(name, []).append(math.log(a / b))
        return np.array([np.mean(values) for values in known.values()])

    @property
    def mean(self) -> float:
        return math.exp(self.logs.mean()) if len(self.logs) else math.nan

    @cached_property
    def interval(self) -> tuple[float, float]:
        """Of the mean; not known of fewer than two problems."""
        if len(self.logs) < 2:
            return math.nan, math.nan
        rng = np.random.default_rng(0)
        means = rng.choice(self.logs, (DRAWS, len(self.logs))).mean(axis=1)
        low, high = np.exp(np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
        return float(low), float(high)

    @property
    def changed(self) -> int:
        """How many runs are not those of the default."""
        return sum(a != b for a, b in self.pairs.values())

    @property
    def lost(self) -> int:
        """How many tasks the default solves and the variant does not, less the reverse."""
        return sum((a is None) - (b is None) for a, b in self.pairs.values())

    @property
    def verdict(self) -> str:
        """Whether the default is better, or the variant, or chance explains the difference."""
        low, high = self.interval
        if low > 1:
            return "default"
        return "variant" if high < 1 else ""

    def shown(self) -> str:
        if not self.pairs:
            return ""
        if not self.changed:
            return "same"
        low, high = self.interval
        text = f"{self.mean:.3f} [{low:.3f}, {high:.3f}]"
        text = f"**{text}**" if self.verdict else text
        return text + (f", {self.lost:+d} unsolved" if self.lost else "")


class Comparison:
    """All runs of a file."""

    def __init__(self, store: Store) -> None:
        self.head = store.head
        self._results: dict[str, dict[Key, Results]] = {}
        for run in store.runs:
            of_collection = self._results.setdefault(run["collection"], {})
            of_collection.setdefault(key(run), {}).update(self._by_task(run))
        for collection, of_collection in self._results.items():
            if self.measures(collection)[0].startswith("excess"):
                self._results[collection] = as_excess(of_collection)

    @property
    def collections(self) -> list[str]:
        return [name for name in self.head["collections"] if name in self._results]

    @property
    def variants(self) -> list[Key]:
        """In the order of the head, the default left out."""
        known = {name for of in self._results.values() for name in of}
        return [name for v in self.head["variants"] if (name := tuple(v)) in known - {BASIC}]

    def measures(self, collection: str) -> list[str]:
        return self.head["collections"][collection]["measures"]

    def ratios(self, variant: Key, collection: str, measure: int = -1) -> Ratios:
        """By one measure, the last if not said."""
        of = self._results[collection]
        default, found = of.get(BASIC, {}), of.get(variant, {})
        shared = [task for task in found if task in default]
        return Ratios({task: (found[task][measure], default[task][measure]) for task in shared})

    def _by_task(self, run: Run) -> Results:
        about = self.head["collections"][run["collection"]]
        first = run["block"] * about["block"]
        members = about["tasks"][first : first + len(run["results"])]
        return {(t[0], t[1]): r for t, r in zip(members, run["results"], strict=True)}


def key(run: Mapping[str, Any]) -> Key:
    return run["rule"], run["constant"], run["value"]


def as_excess(of_collection: dict[Key, Results]) -> dict[Key, Results]:
    """Values as what they exceed the best by that any run has seen; references go.

    Never less than a thousandth of the best, which one of the runs may have reached itself.
    """
    best: dict[TaskKey, float] = {}
    for results in of_collection.values():
        for task, values in results.items():
            known = [v for v in values if v is not None]
            best[task] = min([best.get(task, math.inf), *known])

    def excess(value: float | None, least: float) -> float | None:
        return None if value is None else max(value - least, 1e-3 * abs(least))

    return {
        name: {task: [excess(v, best[task]) for v in vs] for task, vs in results.items()}
        for name, results in of_collection.items()
        if name[0] != REFERENCE
    }


# --- Tables ---


def details(comparison: Comparison) -> str:
    """A row for each variant, a column for each measure."""
    columns = [
        (collection, i, f"{collection}: {measure}")
        for collection in comparison.collections
        for i, measure in enumerate(comparison.measures(collection))
    ]
    rows = [
        [*name, *(comparison.ratios(name, c, i).shown() for c, i, _ in columns)]
        for name in comparison.variants
    ]
    return markdown(["rule", "constant", "value", *(title for *_, title in columns)], rows)


def by_constant(comparison: Comparison) -> Iterator[tuple[str, str, list[Key]]]:
    """The rules and constants, each with its variants."""
    found: dict[tuple[str, str], list[Key]] = {}
    for name in comparison.variants:
        if name[0] != CONTROL:
            found.setdefault(name[:2], []).append(name)
    for (rule, constant), names in found.items():
        yield rule, constant, names


def summary(comparison: Comparison) -> str:
    """Where changing a rule or a constant costs, where it gains, and where nothing changes."""
    rows = []
    for rule, constant, names in by_constant(comparison):
        where: dict[str, list[str]] = {"default": [], "variant": [], "lost": []}
        changed = 0
        for name in names:
            for collection in comparison.collections:
                of_last = comparison.ratios(name, collection)
                changed += of_last.changed
                label = f"{collection} ({name[2]})"
                if of_last.verdict:
                    where[of_last.verdict].append(f"{label} {of_last.mean:.2f}")
                if of_last.lost > 0:
                    where["lost"].append(f"{label} {of_last.lost}")
        cells = ["; ".join(where[what]) for what in ("default", "lost", "variant")]
        rows.append([rule, constant or "(the rule)", *cells, "" if changed else "yes"])
    header = ("rule", "constant", "changing it costs", "unsolved", "gains", "no run changed")
    return markdown(header, rows)


def report(store: Store) -> str:
    comparison = Comparison(store)
    tasks = ", ".join(
        f"{len(comparison.ratios((CONTROL, '', ''), c).pairs)} {c}" for c in comparison.collections
    )
    origin = "Measured on {hardware}, {date}, {commit}.".format_map(store.head)
    explanation = (
        "Ratios of a variant to the default, above 1 where the default is better: geometric means "
        f"with {LEVEL:.0%} intervals by bootstrap over the problems, bold where 1 is outside; of "
        "several measures of a collection the last one counts in the first table. Unsolved: tasks "
        'that the default solves and the variant does not, less the reverse. "control" has other '
        f"draws, or a start that differs by 1e-6, and nothing else: chance. Tasks: {tasks}."
    )
    return "\n\n".join([summary(comparison), details(comparison), explanation, origin])


def count(constants: Sequence[Any]) -> str:
    """How many numbers there are, by kind."""
    kinds = [constant.kind for constant in constants]
    each = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    counted = sum(each.get(kind, 0) for kind in COUNTED)
    listed = ", ".join(f"{number} {kind}" for kind, number in sorted(each.items()))
    return f"{counted} constants; {listed}"
