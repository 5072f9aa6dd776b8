"""Differences of residuals whose Jacobian has few entries: columns that share no row at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, csr_array

from ksdmin._problem.arrays import Array, Small
from ksdmin._problem.box import Box

Residuals = Callable[[Array], Small]


class Sparsity:
    """Where a Jacobian may have entries that are not zero.

    Parameters
    ----------
    pattern : array or sparse matrix, shape (m, n)
        Not zero there.

    Attributes
    ----------
    groups : array of int
        For each column that of its group: columns of a group share no row.
    """

    def __init__(self, pattern: Any) -> None:
        self._pattern = csc_array(pattern)
        self.shape: tuple[int, int] = self._pattern.shape
        self.groups = grouped(self._pattern)

    def jacobian(
        self, fun: Residuals, x: Small, r0: Small, scheme: str, steps: Small, box: Box | None
    ) -> csr_array:
        """The derivatives of `fun`, whose value at x is `r0`: as many evaluations as groups.

        With "3-point" differences twice as many. Where a step would leave the box, it is taken the
        other way, or is as long as there is room.
        """
        columns = np.repeat(np.arange(self.shape[1]), np.diff(self._pattern.indptr))
        rows, entries = self._pattern.indices, np.empty(len(columns))
        low, high = (-np.inf, np.inf) if box is None else (box.lower, box.upper)
        up = np.where(x + steps > high, np.maximum(x - np.abs(steps), low), x + steps)
        up = np.where(up < low, np.minimum(x + np.abs(steps), high), up)
        down = np.clip(2 * x - up, low, high)
        for group in range(self.groups.max() + 1):
            own = self.groups == group
            here = own[columns]
            i, j = rows[here], columns[here]
            if scheme == "cs":
                values = np.imag(fun(np.where(own, x + 1j * np.abs(steps), x)))
                entries[here] = values[i] / np.abs(steps)[j]
                continue
            values, ends = fun(np.where(own, up, x)) - r0, up - x
            if scheme == "3-point" and (down != x)[own].all():
                values, ends = values + r0 - fun(np.where(own, down, x)), up - down
            entries[here] = values[i] / np.where(ends == 0, 1.0, ends)[j]
        return csr_array((entries, (rows, columns)), shape=self.shape)


def grouped(pattern: csc_array) -> npt.NDArray[np.intp]:
    """A group for each column, the first one whose columns share no row with it.

    Columns with many entries come first (Curtis, Powell and Reid 1974).
    """
    m, n = pattern.shape
    groups = np.zeros(n, dtype=np.intp)
    taken: list[npt.NDArray[np.bool_]] = []  # the rows of each group
    for j in np.argsort(-np.diff(pattern.indptr), kind="stable"):
        rows = pattern.indices[pattern.indptr[j] : pattern.indptr[j + 1]]
        fitting = (group for group, used in enumerate(taken) if not used[rows].any())
        groups[j] = next(fitting, len(taken))
        if groups[j] == len(taken):
            taken.append(np.zeros(m, dtype=bool))
        taken[groups[j]][rows] = True
    return groups


def require_shape(shape: tuple[int, ...], expected: tuple[int, int], what: str) -> None:
    """Refuse a Jacobian, or its pattern, of another shape."""
    if shape != expected:
        raise ValueError(
            f"{what} shape {shape}, expected {expected}: one row per residual, one column per "
            "variable"
        )
