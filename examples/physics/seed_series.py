"""Runs that differ in the seed alone belong together."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.harness.store import Run
from examples.harness.tables import median
from examples.physics.experiments import EXPERIMENTS
from examples.physics.methods import METHODS
from examples.physics.run_config import WrongCall, store_of

EARLY = 0.95  # of the seconds: a run that ended before stopped by itself


@dataclass(frozen=True)
class Case:
    """What methods are compared on: one problem at equal seconds on the same hardware."""

    problem: str
    dtype: str
    seconds: float
    passes: float | None
    small: bool
    hardware: str


@dataclass(frozen=True)
class Series:
    """The runs of one method on one case, by seed."""

    method: str
    runs: Mapping[int, Run]

    def median_at_end(self, column: str) -> float:
        """Where the runs end, of themselves or when time is spent."""
        return median(run["trace"][column][-1] for run in self.runs.values())

    def stopped_after(self) -> float | None:
        """The median of the seconds after which it stopped by itself, if it mostly did."""
        seconds = self.median_at_end("seconds")
        return seconds if seconds < EARLY * self.config["seconds"] else None

    @property
    def config(self) -> dict[str, Any]:
        """Of any of them; only the seed differs."""
        return next(iter(self.runs.values()))["config"]

    @property
    def options(self) -> str:
        """Where the method was given others than its own."""
        given = self.config["options"]
        return f" {json.dumps(given)}" if given else ""


def load_runs(folder: Path) -> list[Run]:
    """All runs in a folder."""
    runs = [run for problem in EXPERIMENTS for run in store_of(problem, folder).runs]
    if not runs:
        raise WrongCall(f"{folder} holds no runs: python -m examples.physics run ... makes them")
    return runs


def by_case(runs: Iterable[Run]) -> dict[Case, list[Series]]:
    """The series of each case, both in the order in which they are listed."""
    found: dict[Case, dict[tuple[str, str], dict[int, Run]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for run in sorted(runs, key=_order):
        config = run["config"]
        same = {name: config[name] for name in ("problem", "dtype", "seconds", "passes", "small")}
        case = Case(**same, hardware=run["hardware"])
        options = json.dumps(config["options"], sort_keys=True)
        found[case][config["method"], options][config["seed"]] = run
    return {
        case: [Series(method, runs) for (method, _), runs in series.items()]
        for case, series in found.items()
    }


def _order(run: Run) -> tuple[Any, ...]:
    config = run["config"]
    place = [list(EXPERIMENTS).index(config["problem"]), list(METHODS).index(config["method"])]
    return (place[0], config["dtype"] != "float64", config["seconds"], place[1], config["seed"])
