"""Damped Gauss-Newton directions from the whole curvature: its matrix, or the Jacobian's rows.

Problem: at x with gradient g and curvature H, both without the variables that a bound holds, find
-(H + l I)^-1 g for a handful of dampings l.

Algorithm: one Cholesky factorisation each, of H + l I, where there are fewer unknowns than rows; or
else of R R^T + l I, which is smaller: with H = R^T R + p I and g = R^T r + q,

    (H + l I)^-1 g = R^T u + q / m,   (R R^T + m I) u = r - R q / m,   m = p + l,

where q is the penalty's gradient, or the part of a gradient that is of other samples. The matrices
stay in the user's namespace, on its device, in float64.
"""

from __future__ import annotations

from typing import Protocol

from ksdmin._problem.arrays import Array, Space
from ksdmin._problem.protocol import Jacobian

# Of |R| |r|, in roundings: a part of the gradient that is no more is not known.
MIN_REMAINDER = 1000


class WholeCurvature(Protocol):
    """H, as far as the variables are free to move."""

    @property
    def scale(self) -> float:
        """The mean of its eigenvalues that are not zero by construction."""

    def directions(self, dampings: list[float]) -> list[tuple[float, Array]]:
        """(l, -(H + l I)^-1 g) for each damping l; those lost in rounding are left out."""

    def products(self, V: Array) -> Array:
        """V H, for vectors that are rows."""


class ByMatrix:
    """H as a matrix.

    Parameters
    ----------
    space : Space
        Where the vectors live.
    H : array
        The matrix.
    g : array
        The gradient.
    free : array or None
        1 for each variable that may move, 0 for one that a bound holds; None: all may.
    """

    def __init__(self, space: Space, H: Array, g: Array, free: Array | None) -> None:
        H = space.in_double(H)
        self._H = H if free is None else H * space.in_double(free[:, None] * free[None, :])
        self._space, self._g = space, space.in_double(g)

    @property
    def scale(self) -> float:
        return float(self._space.xp.linalg.trace(self._H)) / self._space.n

    def directions(self, dampings: list[float]) -> list[tuple[float, Array]]:
        found = []
        for damping in dampings:
            solved = self._space.solve_definite(self._H, damping, -self._g)
            if solved is not None:
                found.append((damping, self._space.in_own_dtype(solved)))
        return found

    def products(self, V: Array) -> Array:
        return self._space.in_double(V) @ self._H


class ByRows:
    """H as the rows of a Jacobian.

    Parameters
    ----------
    space, g, free
        As in :class:`ByMatrix`.
    jacobian : Jacobian
        R, r and the penalty.
    """

    def __init__(self, space: Space, jacobian: Jacobian, g: Array, free: Array | None) -> None:
        R, r = space.in_double(jacobian.rows), space.in_double(jacobian.residuals)
        self._R = R if free is None else R * space.in_double(free)
        self._space, self._r, self._penalty = space, r, jacobian.penalty
        self._gram = self._R @ self._R.T
        q = space.in_double(g) - r @ self._R
        trace = space.xp.linalg.trace(self._gram)
        left, largest = space.floats((q @ q) ** 0.5, (trace * (r @ r)) ** 0.5)
        known = left > MIN_REMAINDER * space.eps * largest
        self._q = q if known else None

    @property
    def scale(self) -> float:
        return float(self._space.xp.linalg.trace(self._gram)) / len(self._r) + self._penalty

    def directions(self, dampings: list[float]) -> list[tuple[float, Array]]:
        found = []
        for damping in dampings:
            shift, rhs = damping + self._penalty, self._r
            if self._q is not None:
                rhs = rhs - self._R @ self._q / shift
            solved = self._space.solve_definite(self._gram, shift, rhs)
            if solved is not None:
                d = -(solved @ self._R)
                d = d if self._q is None else d - self._q / shift
                found.append((damping, self._space.in_own_dtype(d)))
        return found

    def products(self, V: Array) -> Array:
        V = self._space.in_double(V)
        return (V @ self._R.T) @ self._R + self._penalty * V
