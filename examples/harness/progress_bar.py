"""A progress bar of the seconds, where tqdm is installed and the output is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(label: str, seconds: float) -> Iterator[Callable[[float], None]]:
    """A function to call with the seconds that have passed."""
    tqdm = _tqdm() if sys.stderr.isatty() else None
    if tqdm is None:
        yield lambda now: None
        return
    with tqdm(desc=label, total=seconds, unit="s", bar_format="{desc} |{bar}| {n:.0f} s") as shown:

        def show(now: float) -> None:
            shown.n = min(now, seconds)
            shown.update(0)

        yield show


def _tqdm():
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm
