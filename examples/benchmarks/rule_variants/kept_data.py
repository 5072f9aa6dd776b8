"""A folder with the data that need packages or downloads, to be carried to a machine without them.

`ablation.py --prepare` fills it; what is not there is made anew.
"""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from examples.benchmarks.comparison.pooled_runs import CACHE

FOLDER = CACHE / "ablation"


def load(name: str, make: Callable[[], Any]) -> Any:
    """From the folder, or as `make` returns it."""
    kept = _file(name)
    return pickle.loads(gzip.decompress(kept.read_bytes())) if kept.exists() else make()


def save(name: str, data: Any) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    _file(name).write_bytes(gzip.compress(pickle.dumps(data)))


def _file(name: str) -> Path:
    return FOLDER / f"{name}.pickle.gz"
