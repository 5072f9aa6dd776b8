"""Runs as JSON: they accumulate in a file, and a run that is there is not repeated."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

Run = dict[str, Any]


class Store:
    """The runs in one file, one a line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.runs: list[Run] = json.loads(path.read_text()) if path.is_file() else []

    def has(self, config: dict[str, Any]) -> bool:
        """Whether a run of this configuration is there."""
        wanted = as_stored(config)
        return any(run["config"] == wanted for run in self.runs)

    def add(self, run: Run) -> None:
        """Append a run, and write the file: whole or not at all."""
        self.runs.append(as_stored(run))
        lines = ",\n".join(json.dumps(run, separators=(",", ":")) for run in self.runs)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(".part")
        draft.write_text(f"[\n{lines}\n]\n")
        os.replace(draft, self._path)


def as_stored(value: Any) -> Any:
    """What JSON makes of it: tuples become lists."""
    return json.loads(json.dumps(value))


def columns(trace: list[dict[str, float]]) -> dict[str, list[float]]:
    """A trace by columns, which is how it is stored, with the digits that matter."""
    return {name: [_rounded(row[name]) for row in trace] for name in trace[0]}


def _rounded(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.5g}")
