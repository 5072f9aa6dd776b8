"""What a run spends: counts of evaluations, and problems that keep the counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.sparse import issparse
from scipy.sparse.linalg import LinearOperator

from ksdmin._problem.arrays import Array, Small, Space, to_host
from ksdmin._problem.kronecker import Factors
from ksdmin._problem.protocol import Jacobian, Problem, Product, Traits, traits_of
from ksdmin._problem.team import ALONE, Team, Watch
from ksdmin._problem.user_values import as_scalar
from ksdmin._problem.values import changed


@dataclass(slots=True)
class Counts:
    """What a run has spent so far; a value or a gradient over all samples is a pass, a product two.

    `differenced` of the `njev` gradients were made of values, which `nfev` counts already. A
    curvature matrix counts in `nhev` as often as the model was evaluated for it: once for a linear
    model and for a user's `hess` or `matrix` (as SciPy counts `hess`), n times if it is made of n
    products. With several processes, `reductions` counts the sums over them, and `reduced_bytes`
    what each process has sent.
    """

    nfev: int = 0
    njev: int = 0
    nhev: int = 0
    differenced: int = 0
    passes: float = 0.0
    reductions: int = 0
    reduced_bytes: int = 0

    @property
    def work(self) -> int:
        """Evaluations in units of one value: gradients count one, products two."""
        return self.nfev + self.njev - self.differenced + 2 * self.nhev

    def copy(self) -> Counts:
        """A copy of the counts."""
        evaluations = self.nfev, self.njev, self.nhev, self.differenced
        return Counts(*evaluations, self.passes, self.reductions, self.reduced_bytes)

    def add_message(self, size: int) -> None:
        """Count a sum over processes, for which this one sends `size` bytes."""
        self.reductions += 1
        self.reduced_bytes += size

    def add(self, nfev: int = 0, njev: int = 0, nhev: int = 0) -> None:
        """Count evaluations."""
        self.nfev += nfev
        self.njev += njev
        self.nhev += nhev


class CountingProblem:
    """A problem as a run uses it: it counts its own evaluations."""

    traits: Traits  # what a method must know of it
    # What the user wants steps of each variable to be multiplied by, to be alike (1 / x_scale).
    variable_scale: Small | None = None
    # Whether tests of convergence are to be free of units, whatever the steps are.
    unit_free = False
    # Whether ``sparse_jacobian`` has the rows: known once they were computed.
    has_sparse_jacobian = False
    sees_nothing = False  # whether no residual changed by any difference of the last Jacobian
    # Whether a user has written the gradient beside the value: the two may contradict each other.
    gradient_is_written = False
    _counts: Counts

    def __repr__(self) -> str:
        described = ", ".join(self._described())
        return f"<{type(self).__name__}: {described}>" if described else f"<{type(self).__name__}>"

    def _described(self) -> list[str]:
        """A short description for the user."""
        return []

    @property
    def team(self) -> Team:
        """The processes that evaluate it."""
        return ALONE

    def counting(self, counts: Counts) -> Self:
        """A copy that counts in `counts`, and remembers the same."""
        return changed(self, _counts=counts)

    def in_space(self, space: Space) -> CountingProblem:
        """The problem for a run whose vectors live in `space`."""
        return self

    def in_step_with(self, watch: Watch) -> Self:
        """A copy for a run that `watch` may end, if several processes agree."""
        return self

    def largest_cosine(self, x: Array, idx: Any, g: Array, value: float) -> float | None:
        """The largest cosine between residuals and a column with g not 0; None: not known."""
        return None

    def predicted_reduction(self, x: Array, idx: Any, g: Array) -> float | None:
        """The reduction that a linear model of the residuals predicts; None: not known."""
        return None

    def in_finer_arithmetic(self) -> CountingProblem | None:
        """The problem with less rounding, if there is one."""
        return None

    def home(self, space: Space) -> Space:
        """Where the vectors live: in `space`, or in another dtype after finer arithmetic."""
        return space

    def remembered(self) -> Remembered | None:
        """What it remembers of its last point, to be saved; None: nothing."""
        return None

    def value_beside(self, x: Array, idx: Any) -> float:
        """The value, without forgetting another point."""
        return self.value(x, idx)

    def sparse_jacobian(self, x: Array, idx: Any, reweighting: float) -> Jacobian | None:
        """The Jacobian with sparse rows, for very many unknowns."""
        return None

    # The verbs of a `Problem`, and others as far as the traits declare them. Here a matrix or a
    # Jacobian may turn out to be impossible: then it is None.
    value: Callable[[Array, Any], float]
    value_and_gradient: Callable[..., Any]
    value_and_projected_gradient: Callable[[Array, Any, Array], tuple[float, Small]]
    curvature: Callable[[Array, Any], Product]
    matrix: Callable[[Array, Any], Array | None]
    jacobian: Callable[[Array, Any], Jacobian | None]
    factors: Callable[[Array, Any], Factors]
    # A copy that remembers what another one did, if that was anything.
    recalling: Callable[[Remembered], CountingProblem]


class CheckedProblem(CountingProblem):
    """A user's problem: its verbs are counted, what they return is checked, x is protected.

    A user's verb gets a copy of x (and of v) at every call, and may overwrite it.
    """

    def __init__(self, problem: Problem, space: Space) -> None:
        self.traits = traits_of(problem)
        self._space, self._counts = space, Counts()
        self._own = Counts() if self.traits.counts_itself else None  # counted by the user's problem
        own: Any = problem
        self._problem = own if self._own is None else own.counting(self._own)

    def in_finer_arithmetic(self) -> CheckedProblem | None:
        """The user's problem with less rounding, checked likewise; None where there is none."""
        finer = self._problem.in_finer_arithmetic()
        if finer is None:
            return None
        x0 = getattr(finer, "x0", None)  # its dtype may differ
        moves = x0 is not None and not self._space.hosted and x0.dtype != self._space.dtype
        return CheckedProblem(finer, Space(x0) if moves else self._space)

    def home(self, space: Space) -> Space:
        """The space of the user's problem, by its own x0."""
        return space if self._space.dtype == space.dtype else self._space

    def value(self, x: Array, idx: Any) -> float:
        out = self._counted(self._problem.value, x, idx, nfev=1)
        return as_scalar(out, "value")

    def value_and_gradient(self, x: Array, idx: Any, *, diagonal: bool = False) -> Any:
        verb, function = "value_and_gradient", self._problem.value_and_gradient
        if diagonal:  # a problem without a diagonal need not know the keyword
            function = partial(function, diagonal=True)
        out = self._counted(function, x, idx, nfev=1, njev=1)
        expected = "(value, gradient, diagonal)" if diagonal else "(value, gradient)"
        value, *tall = _tuple(out, 3 if diagonal else 2, verb, expected)
        return as_scalar(value, verb), *(self._space.vector(u, verb) for u in tall)

    def value_and_projected_gradient(self, x: Array, idx: Any, V: Array) -> tuple[float, Small]:
        verb, function = "value_and_projected_gradient", self._problem.value_and_projected_gradient
        out = self._counted(function, x, idx, self._space.given(V), nfev=1, njev=1)
        value, slopes = _tuple(out, 2, verb, "(value, V^T g)")
        slopes = to_host(slopes)
        if slopes.shape != (V.shape[0],):
            raise ValueError(f"{verb} returned slopes of shape {slopes.shape}, not {V.shape[:1]}")
        return as_scalar(value, verb), slopes

    def curvature(self, x: Array, idx: Any) -> Product:
        product = self._counted(self._problem.curvature, x, idx)
        if not callable(product):
            raise TypeError(
                f"curvature returned a {type(product).__name__}: expected a function v -> Hv"
            )

        def times(v: Array) -> Array:
            out = self._counted(product, v, nhev=1)
            return self._space.vector(out, "the product of curvature")

        return times

    def matrix(self, x: Array, idx: Any) -> Array:
        out = self._counted(self._problem.matrix, x, idx, nhev=1)
        if issparse(out) or isinstance(out, LinearOperator):
            n = self._space.n
            raise TypeError(
                f"matrix returned a {type(out).__name__}: expected a dense array of shape "
                f"({n}, {n}); leave it out if you have products only"
            )
        return self._space.matrix(out, "matrix")

    def jacobian(self, x: Array, idx: Any) -> Jacobian:
        """The curvature as rows."""
        out = self._counted(self._problem.jacobian, x, idx, nhev=1)
        expected = "a ksdmin.Jacobian (rows, residuals, penalty, at)"
        rows, residuals, penalty, at = _tuple(out, 4, "jacobian", expected)
        shapes = tuple(np.shape(rows)), tuple(np.shape(residuals))
        if shapes != ((*shapes[1], self._space.n), shapes[0][:1]):
            raise ValueError(
                f"jacobian returned rows and residuals of shapes {shapes[0]} and {shapes[1]}: "
                f"expected (rows, {self._space.n}) and (rows,)"
            )
        rows = self._space.copy(rows)  # a run overwrites them
        checked = None if at is None else partial(self._at, at, shapes[1])
        if np.ndim(penalty):
            penalty = self._space.vector(penalty, "jacobian (penalty)")
        else:
            penalty = as_scalar(penalty, "jacobian")
        return Jacobian(rows, residuals, penalty, checked)

    def factors(self, x: Array, idx: Any) -> Factors:
        out = self._counted(self._problem.factors, x, idx, nfev=2, njev=1)
        if not isinstance(out, Factors):
            raise TypeError(f"factors returned a {type(out).__name__}: expected ksdmin's Factors")
        return out

    def _at(self, at: Callable[[Array], Any], shape: tuple[int, ...], x: Array) -> Any:
        """The value and the residuals at another point than the Jacobian's."""
        out = self._counted(at, x, nfev=1)
        value, residuals = _tuple(out, 2, "Jacobian.at", "(value, residuals)")
        if tuple(np.shape(residuals)) != shape:
            raise ValueError(
                f"Jacobian.at returned residuals of shape {tuple(np.shape(residuals))}: expected "
                f"{shape}, one for each row"
            )
        return as_scalar(value, "Jacobian.at"), residuals

    def _counted(self, verb: Callable[..., Any], x: Array, *args: Any, **costs: int) -> Any:
        """Call a verb with a copy of `x`; count its `costs` unless the problem counts itself."""
        own, before = self._own, self._own and self._own.copy()
        out = verb(self._space.given(x), *args)
        if own and before:
            self._counts.add(own.nfev - before.nfev, own.njev - before.njev, own.nhev - before.nhev)
        else:
            self._counts.add(**costs)
        return out


def _tuple(out: Any, length: int, verb: str, expected: str) -> Any:
    if not isinstance(out, (tuple, list)) or len(out) != length:
        of = f" of {len(out)}" if isinstance(out, (tuple, list)) else ""
        raise ValueError(f"{verb} returned a {type(out).__name__}{of}: expected {expected}")
    return out


def as_counting(problem: Any, space: Space) -> CountingProblem:
    """The problem for a run: ours count themselves, a user's is counted and checked."""
    return problem if isinstance(problem, CountingProblem) else CheckedProblem(problem, space)


@dataclass(slots=True)
class Memo:
    """What was computed last, and where."""

    x: Array = None
    idx: Any = None
    value: float | None = None
    gradient: Array = None

    hessian: Any = None  # an operator: see `FunctionProblem.matrix`
    residuals: Any = None  # of a sum of squares: see `ResidualProblem`
    jacobian: Any = None

    def copy(self) -> Memo:
        """A copy of the memory."""
        known = self.x, self.idx, self.value, self.gradient
        return Memo(*known, self.hessian, self.residuals, self.jacobian)


@dataclass(frozen=True)
class Remembered:
    """The same, as it is saved: matrices may be of any kind, and are computed again."""

    x: Array
    idx: Any
    value: float | None
    gradient: Array | None
    recomputed: tuple[str, ...]  # which matrices were known
    # What calls of `hess` have shown of it.
    hess_works: bool
    hess_is_dense: bool
    hess_is_used: bool
