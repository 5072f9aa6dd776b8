"""Runs of a variant against those of the default, half by half."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from examples.benchmarks.rule_variants.variants import DEFAULT, REFERENCE
from examples.harness.store import Run, Store
from examples.harness.tables import markdown, number

IDENTITY = ("collection", "rule", "constant", "value")
HALVES = ("tuning", "held-out")
HEADER = (
    "rule",
    "constant",
    "value",
    "collection",
    "measure",
    *(f"{half}: {what}" for half in HALVES for what in ("ratio", "worst", "solved")),
    "both: ratio",
    "runs changed",
)


@dataclass(frozen=True)
class Ratios:
    """What a variant takes, of what the default takes, on some tasks.

    Attributes
    ----------
    known : list of float
        One ratio for each task that both solve.
    solved, by_default, tasks : int
        How many the variant solves, how many the default, of how many.
    """

    known: list[float]
    solved: int
    by_default: int
    tasks: int

    @property
    def mean(self) -> float:
        """The geometric mean."""
        return math.exp(statistics.fmean(map(math.log, self.known))) if self.known else math.nan

    @property
    def error(self) -> float:
        """The standard error of the logarithm of the mean."""
        if len(self.known) < 2:
            return math.nan
        return statistics.stdev(map(math.log, self.known)) / math.sqrt(len(self.known))

    @property
    def worst(self) -> float:
        return max(self.known, default=math.nan)

    def cells(self) -> list[str]:
        solved = f"{self.solved}/{self.tasks}"
        if self.solved != self.by_default:
            solved += f" (default {self.by_default})"
        error = number(self.error, ".2f", missing="?")
        mean = f"{number(self.mean, '.3f')} ± {error}" if self.known else ""
        return [mean, number(self.worst, ".2f"), solved]


def compared(variant: Sequence[float | None], default: Sequence[float | None]) -> Ratios:
    """A number for each task; None: not solved."""
    pairs = list(zip(variant, default, strict=True))
    return Ratios(
        known=[a / b for a, b in pairs if a is not None and b is not None],
        solved=sum(a is not None for a in variant),
        by_default=sum(b is not None for b in default),
        tasks=len(pairs),
    )


def best_values(runs: Iterable[Run]) -> list[float]:
    """For each task the least value that any run has seen."""
    columns = [results for run in runs for results in run["results"]]
    return [min(v for v in column if v is not None) for column in zip(*columns, strict=True)]


def excesses(run: Run, best: Sequence[float]) -> list[list[float | None]]:
    """How far the values are from the best."""
    return [[excess(v, b) for v, b in zip(row, best, strict=True)] for row in run["results"]]


def excess(value: float | None, best: float) -> float | None:
    """Never less than a thousandth of the best, which one of the runs may have reached itself."""
    return None if value is None else max(value - best, 1e-3 * abs(best))


def with_excess(runs: Sequence[Run], measures: Sequence[str]) -> dict[str, list]:
    """The results by variant: those of nets as an excess over the best value."""
    if not measures[0].startswith("excess"):
        return {key(run): run["results"] for run in runs}
    best = best_values(runs)
    return {key(run): excesses(run, best) for run in runs if run["rule"] != REFERENCE}


def key(run: Mapping[str, Any]) -> tuple[str, str, str]:
    return run["rule"], run["constant"], run["value"]


def rows(store: Store) -> Iterator[list[str]]:
    """A row for each variant, collection and measure."""
    for collection, about in store.head["collections"].items():
        runs = [run for run in store.runs if run["collection"] == collection]
        results = with_excess(runs, about["measures"])
        default = results.pop((DEFAULT, "", ""))
        for name, found in results.items():
            for i, measure in enumerate(about["measures"]):
                cells = by_half(found[i], default[i], about["tasks"])
                yield [*name, collection, measure, *cells]


def by_half(found: Sequence, default: Sequence, tasks: Sequence) -> list[str]:
    """The ratios on each half and on both, and how many runs are not the default's."""
    cells: list[str] = []
    for half in HALVES:
        at = [i for i, task in enumerate(tasks) if task[2] == half]
        cells += compared([found[i] for i in at], [default[i] for i in at]).cells()
    both = compared(found, default).cells()[0]
    differ = sum(a != b for a, b in zip(found, default, strict=True))
    return [*cells, both, f"{differ}/{len(tasks)}"]


def table(store: Store) -> str:
    """All of it in Markdown, and where it was measured."""
    order = {name: i for i, name in enumerate(dict.fromkeys(map(key, store.runs)))}
    listed = sorted(rows(store), key=lambda cells: order[tuple(cells[:3])])
    origin = "Measured on {hardware}, {date}, {commit}.".format_map(store.head)
    return f"{markdown(HEADER, listed)}\n\n{origin}"
