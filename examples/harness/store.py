"""Runs as JSON: they accumulate in a file, one per line, so that none need be repeated.

A file is a list of runs; where something is said of all of them, an object with these entries and
the list as its last one, "runs".
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # not on Windows: there, one process at a time
    fcntl = None

Run = dict[str, Any]


class Store:
    """The runs in one file.

    Parameters
    ----------
    path : Path
        The file, which need not be there yet; compressed if it ends in ``.gz``.
    identity : sequence of str
        The entries that say which run it is. Of two runs that agree in them the later one is kept.

    Attributes
    ----------
    head : dict
        What is said of all runs. With "columns" in it they are written as rows, without names.
    """

    def __init__(self, path: Path, identity: Sequence[str]) -> None:
        self._path, self._identity = path, tuple(identity)
        self._load()

    @property
    def runs(self) -> list[Run]:
        """All runs, in the order of the file."""
        return list(self._runs.values())

    def find(self, **identity: Any) -> Run | None:
        """The run of this identity, if it is there."""
        return self._runs.get(self._key(identity))

    def add(self, *runs: Run) -> None:
        """Add runs to those in the file; other processes may do so, too."""
        with _locked(self._path):
            self._load()
            self._write(self.head, [*self.runs, *runs])

    def replace(self, runs: Iterable[Run], head: Mapping[str, Any]) -> None:
        """Write these runs instead of those in the file."""
        with _locked(self._path):
            self._write(head, runs)

    def _key(self, run: Mapping[str, Any]) -> str:
        return json.dumps([run[name] for name in self._identity], sort_keys=True)

    def _load(self) -> None:
        text = _read(self._path) if self._path.is_file() else "[]"
        self._parse(text)

    def _parse(self, text: str) -> None:
        content = json.loads(text)
        self.head = {} if isinstance(content, list) else content
        rows = self.head.pop("runs", content)
        if "columns" in self.head:
            rows = [dict(zip(self.head["columns"], row, strict=True)) for row in rows]
        self._runs = {self._key(run): run for run in rows}

    def _write(self, head: Mapping[str, Any], runs: Iterable[Run]) -> None:
        unique = {self._key(run): run for run in runs}
        text = _text(head, unique.values())
        _write(self._path, text)
        self._parse(text)  # what is in memory is what a reader of the file gets: lists, no tuples


def _text(head: Mapping[str, Any], runs: Iterable[Run]) -> str:
    """One run per line, for small differences between versions."""
    columns = head.get("columns")
    rows = runs if columns is None else ([run[name] for name in columns] for run in runs)
    listed = "[\n" + ",\n".join(map(_compact, rows)) + "\n]"
    if not head:
        return f"{listed}\n"
    entries = "".join(f"{_compact(name)}:{_compact(value)},\n" for name, value in head.items())
    return f'{{\n{entries}"runs":{listed}\n}}\n'


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _read(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


def _write(path: Path, text: str) -> None:
    """The whole file or none of it: another process may be reading."""
    content = text.encode()
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    draft.replace(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The file's folder, made where it is not there, for one process at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    opened = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)
