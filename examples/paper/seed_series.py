"""Runs that differ in the seed alone belong together; of a method's series the best is shown.

The best is the one of the least mean error on held-out data (on training data, where none are held
out), so that rates, l2 and options are chosen without a look at the test set. Runs that had the
processor to themselves and runs that shared it are never compared: sharing slows methods that use
all samples in each step, such as HF, more than others.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from examples.harness.store import Run, Store

IDENTITY = ("config", "hardware")  # of a stored run
TUNED = ("seconds", "passes", "l2", "rate", "precision", "options")


@dataclass(frozen=True)
class Series:
    """The runs of one configuration, by seed; and how many configurations it was chosen from."""

    runs: Mapping[int, Run]
    tried: int = 1

    @property
    def config(self) -> dict[str, Any]:
        """Of any of them; only the seed differs."""
        return next(iter(self.runs.values()))["config"]

    @property
    def name(self) -> str:
        """The method, and what of it is not as usual."""
        config = self.config
        words = [config["method"]]
        words += [config["curvature"]] if config["curvature"] not in (None, "gauss-newton") else []
        words += [f"code {config['code']}"] if config["code"] is not None else []
        words += ["nothing held out"] if config["held_out"] == 0 else []
        words += ["shared"] if self.shared else []
        return ", ".join(words)

    @property
    def date(self) -> str:
        """When the last of them was made."""
        return max(run["date"] for run in self.runs.values())

    @property
    def shared(self) -> bool:
        """Whether other runs were on the processor at the same time."""
        return _shared(next(iter(self.runs.values())))

    def at_stop(self, column: str) -> dict[int, float]:
        """What a column holds where each run is stopped."""
        return {
            seed: run["trace"][column][stopping_point(run["trace"])]
            for seed, run in self.runs.items()
        }

    def at_end(self, column: str) -> list[float]:
        """What a column holds where each run ends of itself."""
        return [run["trace"][column][-1] for run in self.runs.values()]

    def chosen_by(self) -> float:
        """The error that the choice between series goes by."""
        held_out = all("held_out" in run["trace"] for run in self.runs.values())
        return fmean(self.at_stop("held_out" if held_out else "train").values())


def load_runs(folder: Path) -> dict[str, list[Run]]:
    """The runs of each row that are in the folder's files."""
    runs: dict[str, list[Run]] = defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        for run in Store(path, IDENTITY).runs:
            runs[run["config"]["row"]].append(run)
    if not runs:
        raise SystemExit(f"{folder} holds no runs: python -m examples.paper run ... makes them")
    return runs


def best_series(runs: Iterable[Run]) -> list[Series]:
    """The best series of each method and curvature; runs that were profiled are left out."""
    lines: dict[str, dict[str, dict[int, Run]]] = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        if not run["config"]["profile"]:
            lines[_key(run, without=TUNED)][_key(run)][run["config"]["seed"]] = run
    return [_best(list(line.values())) for line in lines.values()]


def by_method(runs: Iterable[Run]) -> dict[str, Series]:
    """The best series of each method with its usual curvature and samples held out.

    It has the most seeds; of equals, it is the newest.
    """
    usual = [
        series
        for series in best_series(runs)
        if series.config["curvature"] in (None, "gauss-newton")
        and series.config["held_out"] is None
    ]
    ordered = sorted(usual, key=lambda series: (len(series.runs), series.date))
    return {series.config["method"]: series for series in ordered}


def _best(line: list[dict[int, Run]]) -> Series:
    most = max(len(runs) for runs in line)
    # With fewer seeds it was a trial of settings, not a measurement.
    measured = [Series(runs, tried=len(line)) for runs in line if len(runs) == most]
    return min(measured, key=Series.chosen_by)


def _key(run: Run, without: tuple[str, ...] = ()) -> str:
    same = {k: v for k, v in run["config"].items() if k != "seed" and k not in without}
    return json.dumps({**same, "shared": _shared(run)}, sort_keys=True)


def _shared(run: Run) -> bool:
    return ", shared by " in run["hardware"]


def stopping_point(trace: dict[str, list[float]]) -> int:
    """Where early stopping ends a run: the first point of the least error on held-out data.

    Without held-out data it is the end.
    """
    errors = trace.get("held_out")
    return len(trace["seconds"]) - 1 if errors is None else errors.index(min(errors))
