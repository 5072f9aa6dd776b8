"""What a problem remembers of the point that it was last asked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ksdmin._problem.arrays import Array

MATRICES = ("hessian", "residuals", "jacobian")


@dataclass(slots=True)
class Memo:
    """What was last computed, and where."""

    x: Array = None
    idx: Any = None
    value: float | None = None
    gradient: Array = None

    hessian: Any = None  # an operator: see `FunctionProblem.matrix`
    residuals: Any = None  # of a sum of squares: see `ResidualProblem`
    jacobian: Any = None

    @property
    def matrices(self) -> tuple[str, ...]:
        """Which of the larger things are known."""
        return tuple(name for name in MATRICES if getattr(self, name) is not None)

    def copy(self) -> Memo:
        """A memory that goes on from this one, which stays as it is."""
        known = self.x, self.idx, self.value, self.gradient
        return Memo(*known, self.hessian, self.residuals, self.jacobian)


@dataclass(frozen=True)
class Remembered:
    """The same, as it is saved: matrices may be of any kind, and are computed again.

    Attributes
    ----------
    x, idx : array, object
        The point and the set.
    value, gradient : float or None, array or None
        As far as they are known.
    recomputed : tuple of str
        Which matrices were known.
    hess_works, hess_is_dense, hess_is_used : bool
        What calls of `hess` have shown of it.
    """

    x: Array
    idx: Any
    value: float | None
    gradient: Array | None
    recomputed: tuple[str, ...]
    hess_works: bool
    hess_is_dense: bool
    hess_is_used: bool
