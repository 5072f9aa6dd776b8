"""The preconditioner P of the Krylov space (D in the paper; Algorithm 3, line 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ksdmin._problem.arrays import Array, Space
from ksdmin._problem.kronecker import MEAN_SHARE, DampedFactors


@dataclass(frozen=True)
class Preconditioner:
    """A positive definite matrix P: its inverse, and itself where that is at hand."""

    solve: Callable[[Array], Array]  # w -> P^-1 w
    times: Callable[[Array], Array] | None = None  # v -> P v; None where only the inverse is known
    # Whether P is.
    is_diagonal: bool = False
    is_identity: bool = False
    # What it is made of, where it can be made again of other arrays of these shapes.
    arrays: tuple[Array, ...] = ()
    again: Callable[..., Preconditioner] | None = None  # makes it of such arrays

    @classmethod
    def diagonal(cls, D: Array | None) -> Preconditioner:
        """P = D, or the identity."""
        if D is None:
            return IDENTITY
        again = cls.diagonal
        return cls(lambda w: w / D, lambda v: v * D, is_diagonal=True, arrays=(D,), again=again)

    def scaled(self, scale: Array) -> Preconditioner:
        """P times a number."""
        if self.is_diagonal and self.arrays:
            return Preconditioner.diagonal(self.arrays[0] * scale)
        return Preconditioner(lambda w: self.solve(w) / scale)


def of_factors(space: Space, P: DampedFactors) -> Preconditioner:
    """P made of Kronecker factors."""
    return Preconditioner(
        partial(P.solve, space),
        partial(P.multiply, space),
        arrays=(P.times, P.solves),
        again=lambda *arrays: of_factors(space, DampedFactors(P.blocks, *arrays)),
    )


def _same(u: Array) -> Array:
    return u


IDENTITY = Preconditioner(_same, _same, is_diagonal=True, is_identity=True)


def diagonal_preconditioner(space: Space, diagonal: Array, floor: float, power: float) -> Array:
    """D: `diagonal`, floored to `floor` times its maximum; ones if the maximum is 0 or not finite.

    A power below 1 means that it is made of squared gradients. As in Martens' method, a constant is
    added first.
    """
    largest = space.largest(diagonal)
    if not 0 < largest < float("inf"):
        return space.xp.ones_like(diagonal)
    if power < 1:
        return (diagonal + MEAN_SHARE * space.mean(diagonal)) ** power
    D = space.xp.clip(diagonal, floor * largest, largest)
    return D if power == 1 else D**power
