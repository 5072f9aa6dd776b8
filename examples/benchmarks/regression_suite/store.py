"""The files of results: one a method, and one of least values; each run is added when it ends."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import ksdmin
from examples.benchmarks.comparison.pooled_runs import processor

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


def environment() -> dict[str, str]:
    """Date, hardware, and the commit that last changed ksdmin itself."""
    return {"date": date.today().isoformat(), "commit": commit(), "hardware": processor()}


def commit() -> str:
    package = Path(ksdmin.__file__).parent

    def git(*args: str) -> str:
        done = subprocess.run(
            ["git", *args], cwd=package, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    changed = "-dirty" if git("status", "--porcelain", ".") else ""
    return (git("log", "-1", "--format=%h", "--", ".") or ksdmin.__version__) + changed


def is_current(entry: dict | None, of_ksd: bool, now: str) -> bool:
    """SciPy's methods do not change; a run of ksdmin is good for its commit."""
    return entry is not None and (not of_ksd or (entry["commit"] == now and "dirty" not in now))
