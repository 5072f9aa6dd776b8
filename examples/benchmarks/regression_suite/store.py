"""The files of results: one a method, and one of least values; each run is added when it ends."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "results" / "regression"


def key(data: str, l2: float, seed: int | None = None) -> str:
    return f"{data} {l2:.0e}" + ("" if seed is None else f" seed {seed}")


def read(file: Path) -> dict[str, dict]:
    return json.loads(file.read_text()) if file.exists() else {}


def add(file: Path, name: str, entry: dict) -> None:
    """Add an entry, or replace it; several processes may do so."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with locked(file.parent):
        entries = read(file) | {name: entry}
        lines = [f" {json.dumps(name)}: {json.dumps(entries[name])}" for name in sorted(entries)]
        new = file.with_suffix(".new")
        new.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        new.replace(file)


@contextmanager
def locked(folder: Path):
    """Held by one process at a time."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def is_current(entry: dict | None, of_ksd: bool, now: str) -> bool:
    """SciPy's methods do not change; a run of ksdmin is good for its commit."""
    return entry is not None and (not of_ksd or (entry["commit"] == now and "dirty" not in now))
