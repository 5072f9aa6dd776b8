"""Which samples a value is not finite for, by halving: at most two passes for each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from ksdmin._problem.arrays import Array, to_host
from ksdmin._problem.subsets import Subsets
from ksdmin._problem.team import ALONE
from ksdmin._run.evaluator import Evaluated, Evaluator
from ksdmin._run.run import Run

MOST = 3  # samples that are named

Rows = npt.NDArray[np.int64]


def not_finite_samples(run: Run, evaluator: Evaluator, here: Evaluated) -> list[int]:
    """A few samples whose own values are not finite at a point whose value is not.

    None where samples have no numbers (the user's own sets, blocks of residuals), are spread over
    processes, or where there is no time left; and where the point is to blame: if all are bad.
    """
    numbered = type(run.subsets) is Subsets and run.subsets.n is not None and run.subsets.n > 1
    if not numbered or run.team is not ALONE or evaluator.spent():
        return []
    rows, found = _rows(run, here.idx), []
    for sample in _found(run, evaluator, here.x, rows):
        found.append(sample)
        if len(found) == MOST:
            break
    return [] if found == rows[:MOST].tolist() else found


def _found(run: Run, evaluator: Evaluator, x: Array, rows: Rows) -> Iterator[int]:
    """The samples whose own values are not finite, one after the other."""
    with suppress(Exception):  # a function may fail on a part: nothing more is said then
        while len(rows) and not _is_finite(run, evaluator, x, rows):
            at = _first(run, evaluator, x, rows)
            if _is_finite(run, evaluator, x, rows[at : at + 1]):
                return  # all are finite, and only their mean is not
            yield int(rows[at])
            rows = rows[at + 1 :]


def _rows(run: Run, idx: Any) -> Rows:
    """The numbers of the samples of a set."""
    if run.subsets.is_full(idx):
        return np.arange(run.subsets.n or 0)
    return np.asarray(to_host(idx), dtype=np.int64)


def _first(run: Run, evaluator: Evaluator, x: Array, rows: Rows) -> int:
    """The place of the first sample that is to blame, if any is."""
    low, high = 0, len(rows)
    while high - low > 1:
        middle = (low + high) // 2
        if _is_finite(run, evaluator, x, rows[low:middle]):
            low = middle
        else:
            high = middle
    return low


def _is_finite(run: Run, evaluator: Evaluator, x: Array, rows: Rows) -> bool:
    return math.isfinite(evaluator.value(x, run.space.indices(rows)))
