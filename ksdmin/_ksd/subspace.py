"""The subspace: flooring, whitening, the objective within it, and its minimum by BFGS.

(Algorithm 3, lines 7 to 11.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
from scipy.linalg import lapack

from ksdmin._ksd.factor import cholesky, eigenvectors
from ksdmin._ksd.krylov import Basis
from ksdmin._ksd.line_search import EPS, contradicted, line_search
from ksdmin._problem.arrays import Array, Small
from ksdmin._problem.box import Box
from ksdmin._run.evaluator import Evaluated, Evaluator

Gram = Callable[[], Small | None]
"""V V^T, computed when it is asked for; None where V is orthonormal."""


def floored(H_bar: Small, floor: float, gram: Gram = lambda: None) -> Small:
    """H_bar with its eigenvalues floored to `floor` times the largest (the paper's rule).

    The largest magnitude stands in where no eigenvalue is positive; the identity where all
    vanish. The eigenvalues are those in an orthonormal basis.
    """

    def positive(values: Small) -> Small:
        scale = values[-1] if values[-1] > 0 else abs(values[0])
        return np.asarray(np.maximum(values, floor * scale))

    return _recomposed(H_bar, positive, gram())


def absolute(H_bar: Small, floor: float, gram: Gram = lambda: None) -> Small:
    """H_bar with |lambda| in place of lambda, floored: negative curvature has a scale too."""
    # Most often all eigenvalues lie above the floor, which Cholesky shows cheaply.
    if cholesky(H_bar, len(H_bar) * floor) is not None:
        return H_bar

    def positive(values: Small) -> Small:
        values = np.abs(values)
        return np.asarray(np.maximum(values, floor * values.max()))

    return _recomposed(H_bar, positive, gram())


def _recomposed(H_bar: Small, positive: Callable[[Small], Small], gram: Small | None) -> Small:
    """H_bar with other eigenvalues, which it has in an orthonormal basis."""
    if gram is not None:
        root, inverse = _roots(gram)
        H_hat = _recomposed(inverse @ H_bar @ inverse.T, positive, None)
        return np.asarray(root @ H_hat @ root.T)
    values, E = eigenvectors(H_bar)
    values = positive(values)
    return np.asarray((E * values) @ E.T) if values.min() > 0 else np.eye(len(values))


def _roots(gram: Small) -> tuple[Small, Small]:
    """B with B B^T = gram, which is positive definite but for rounding; and its inverse."""
    values, E = eigenvectors(gram)
    rounding = len(gram) * np.finfo(np.float64).eps
    lengths = np.maximum(values, rounding * values[-1]) ** 0.5
    return E * lengths, (E / lengths).T


class Whitening:
    """Co-ordinates a in which the model curvature H_hat = L L^T is the identity.

    The whitened basis V L^-T is never formed: a -> L^-T a and g_bar -> L^-1 g_bar are small. (The
    paper calls the factor C, which is also the name of a set.)
    """

    def __init__(self, H_hat: Small) -> None:
        L, failed = lapack.dpotrf(H_hat, lower=1)
        if failed:
            raise np.linalg.LinAlgError("the curvature in the subspace is not positive definite")
        self._inverse: Small = lapack.dtrtri(L, lower=1, overwrite_c=1)[0]

    @property
    def gain(self) -> float:
        """By how much an error in g_bar can grow in the gradient with respect to a."""
        return float(np.linalg.norm(self._inverse))

    def coefficients(self, a: Small) -> Small:
        """L^-T a: what `a` is in terms of the rows of V."""
        coefficients: Small = a.dot(self._inverse)
        return coefficients

    def gradient(self, g_bar: Small) -> Small:
        """L^-1 g_bar: the gradient with respect to a."""
        gradient: Small = self._inverse.dot(g_bar)
        return gradient


class SubspaceObjective:
    """phi(a) = f_C(x + V L^-T a), the objective of the inner search.

    With `tilted`, a linear term is added so that the slope of phi at zero is that of the gradient
    on A, which the basis was built from: f_C(x + d) + <g_A - g_C, d>. `damping` adds its share of
    |d|^2 / 2; `gram` is V V^T where that is needed and is not the identity. Within a box the path
    is projected onto it; both terms are then of the real displacement, as far as it lies in the
    subspace.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        here: Evaluated,
        C: Any,
        basis: Basis,
        whitening: Whitening,
        *,
        tilted: bool,
        damping: float = 0.0,
        gram: Small | None = None,
        box: Box | None = None,
    ) -> None:
        self._evaluator, self._x, self._C = evaluator, here.x, C
        self._basis, self._whitening, self._box = basis, whitening, box
        self._tilt, self._damping, self._gram = np.zeros(basis.dim), damping, gram
        # Slopes without the whole gradient: always cheaper by differences; otherwise worth it
        # unless A serves as C, when the next iteration wants that gradient. (But where it computes
        # a diagonal, it computes the gradient, too.)
        traits, same = evaluator.traits, C is here.idx
        unused = traits.gradient_travels and traits.has_diagonal and not basis.exact
        worthwhile = traits.separate_gradient or unused or not same
        self._projects = traits.has_projected_gradient and worthwhile and box is None
        self._clips = box is not None and (not same or damping > 0)
        if same:  # nothing to evaluate
            self._at_zero = here.value, here.gradient, basis.g_bar
            return
        value, g, known = self._evaluate(here.x)
        slopes, g = self._slopes(here.x, g, known, None)
        self._at_zero = value, g, slopes
        if tilted:
            self._tilt = basis.g_bar - slopes

    def start(self) -> SubspacePoint:
        """Where the search begins; a new object, as one kept here would form a reference cycle."""
        value, g, slopes = self._at_zero
        nothing = np.zeros(self._basis.dim)
        return SubspacePoint(self, nothing, nothing, self._x, value, value, g, slopes, None)

    def at(self, a: Small) -> SubspacePoint:
        """Evaluate at `a`: the value now, the gradient with it or when it is looked at."""
        c = self._whitening.coefficients(a)
        x, stopped = self._x + self._evaluator.space.combine(self._basis.V, c), None
        if self._box is not None:
            wanted, x = x, self._box.project(x)
            stopped = x != wanted
        if self._clips:
            c = self._along(self._along_basis(x - self._x))
        loss, g, slopes = self._evaluate(x)
        value = loss + float(self._tilt.dot(c))
        if self._damping:
            value += self.damped(c)
        return SubspacePoint(self, a, c, x, loss, value, g, slopes, stopped)

    def damped(self, c: Small) -> float:
        """What the damping adds at `c`."""
        return float(c @ self._damping_slopes(c)) / 2 if self._damping else 0.0

    def _damping_slopes(self, c: Small) -> Small:
        """damping V d, where d = V c."""
        return self._damping * (c if self._gram is None else self._gram @ c)

    def _along(self, slopes: Small) -> Small:
        """The c of the displacement d within the subspace that has these products V d."""
        return slopes if self._gram is None else np.linalg.solve(self._gram, slopes)

    def _evaluate(self, x: Array) -> tuple[float, Array | None, Small | None]:
        """f_C; and its gradient, or its slopes along V, where they come with the value."""
        if self._evaluator.traits.separate_gradient:
            return self._evaluator.value(x, self._C), None, None
        if self._projects:
            value, slopes = self._evaluator.value_and_slopes(x, self._C, self._basis.V)
            return value, None, slopes
        return *self._evaluator.value_and_gradient(x, self._C), None

    def gradient(self, point: SubspacePoint) -> tuple[Small, Array | None]:
        """The gradient of phi with respect to a; and that of f_C, where it was computed."""
        stopped = point.stopped
        slopes, g = self._slopes(point.x, point.whole_gradient, point.slopes, stopped)
        if self._clips and stopped is not None:
            added = self._tilt + self._damping_slopes(point.c)
            slopes = slopes + self._moving(added, stopped)
        elif self._damping:
            slopes = slopes + self._tilt + self._damping_slopes(point.c)
        else:
            slopes = slopes + self._tilt
        return self._whitening.gradient(slopes), g

    def _moving(self, slopes: Small, stopped: Array) -> Small:
        """Slopes along the rows of V, without the variables that a bound has stopped."""
        assert self._box is not None
        d = self._evaluator.space.combine(self._basis.V, self._along(slopes))
        return self._along_basis(self._box.without(d, stopped))

    def _along_basis(self, u: Array) -> Small:
        """The products of a vector with the rows of V."""
        space = self._evaluator.space
        return space.to_host(space.inner(self._basis.V, u))[0]

    def _slopes(
        self, x: Array, g: Array | None, known: Small | None, stopped: Array | None
    ) -> tuple[Small, Array | None]:
        """V^T g without the variables that a bound has `stopped`; and g where it was computed."""
        if known is not None:
            return known, g
        if g is None and self._projects:
            return self._evaluator.value_and_slopes(x, self._C, self._basis.V)[1], None
        if g is None:
            g = self._evaluator.value_and_gradient(x, self._C)[1]
        moving = g if stopped is None or self._box is None else self._box.without(g, stopped)
        return self._along_basis(moving), g


class SubspacePoint:
    """A point of the subspace where the objective has been evaluated.

    Attributes
    ----------
    a, c : ndarray
        The point in whitened co-ordinates, and in terms of the rows of V.
    x : array
        The point in the whole space.
    loss, value : float
        f_C and phi there.
    whole_gradient : array or None
        The gradient on C in the whole space, where it was computed.
    slopes : ndarray or None
        V^T g, where it came with the value.
    stopped : array or None
        Within a box, which variables a bound has stopped on the way.
    """

    def __init__(
        self,
        objective: SubspaceObjective,
        a: Small,
        c: Small,
        x: Array,
        loss: float,
        value: float,
        whole_gradient: Array | None,
        slopes: Small | None,
        stopped: Array | None,
    ) -> None:
        self._objective, self.slopes, self.stopped = objective, slopes, stopped
        self.a, self.c, self.x = a, c, x
        self.loss, self.value = loss, value
        self.whole_gradient = whole_gradient
        self._gradient: Small | None = None

    @property
    def gradient(self) -> Small:
        """The gradient of phi with respect to a; computed when it is first looked at."""
        if self._gradient is None:  # (a cached_property locks, which takes longer than this)
            self._gradient, self.whole_gradient = self._objective.gradient(self)
        return self._gradient


# The inner search: BFGS


class Point(Protocol):
    """Where phi has been evaluated; the gradient may be computed only when it is looked at."""

    a: Small
    value: float

    @property
    def gradient(self) -> Small:
        """The gradient of phi."""


P = TypeVar("P", bound=Point)


def bfgs(
    at: Callable[[Small], P],
    start: P,
    *,
    maxiter: int,
    noise: float,
    slope_noise: float = 0.0,
    lowest: float = -np.inf,
    enough: Callable[[float, float], bool] = lambda predicted, gained: False,
    spent: Callable[[], bool] = lambda: False,
    dear: Callable[[], bool] | None = None,
) -> tuple[P, int]:
    """Minimise within the subspace: few variables, a noisy objective, evaluations that cost.

    Problem: minimise phi(a) over a in R^m, from a point where phi and its gradient are known, m
    being the dimension of the subspace. Each evaluation is a pass over data, and phi carries
    rounding noise: values that differ by less than `noise` are equal.

    Algorithm: BFGS in float64 from the unit matrix (the co-ordinates are whitened, so that the
    first trial is the Newton step of the subspace), with a weak Wolfe line search. It ends when the
    gradient has vanished, when the reduction that its model predicts is lost in the noise, when
    `enough` says that more would gain too little, or after `maxiter` iterations.

    Parameters
    ----------
    at : callable
        Evaluates phi: ``at(a) -> Point``.
    start : Point
        Where to start, with finite value and gradient.
    maxiter : int
        The largest number of iterations.
    noise : float
        The absolute rounding error of the values.
    slope_noise : float, optional
        The absolute error of the gradient, where it is got by differences.
    lowest : float, optional
        A value at which the search has fallen far enough.
    enough : callable, optional
        ``enough(predicted, gained)``: whether to stop, from the reduction that the model predicts
        for the next iteration and the one gained so far.
    spent : callable, optional
        Whether the budget of the run is used up.
    dear : callable, optional
        Whether the search has cost so much that it should end once it has found anything.

    Returns
    -------
    Point
        The best point found: `start` itself where nothing better was.
    int
        The number of iterations.
    """
    here, inverse, fresh = start, np.eye(len(start.a)), True
    g = start.gradient
    floor = EPS**0.5 * math.sqrt(g.dot(g))  # what is left to gain is rounding
    for iteration in range(maxiter):
        p = -inverse.dot(g)
        slope, size = float(g.dot(p)), math.sqrt(g.dot(g))
        predicted, gained = -slope / 2, start.value - here.value
        if size <= floor or (iteration and (predicted <= noise or size <= slope_noise)):
            return here, iteration
        ended = spent if dear is None or here is start else lambda: spent() or dear()
        if here.value <= lowest or ended() or enough(predicted, gained):
            return here, iteration
        there, t = search_along(at, here, p, slope, noise, lowest, ended)
        exact = iteration == 0 and not slope_noise
        if exact and there is not None and contradicted(t, start, there, predicted, noise):
            return start, 0
        if there is not None:
            if there.value <= lowest:
                return there, iteration + 1
            after = there.gradient
            inverse = update(inverse, there.a - here.a, after - g)
            here, g, fresh = there, after, False
        elif fresh:
            return here, iteration
        else:  # discard the approximation, and try steepest descent once
            inverse, fresh = np.eye(len(g)), True
    return here, maxiter


def search_along(
    at: Callable[[Small], P],
    here: P,
    p: Small,
    slope: float,
    noise: float,
    lowest: float,
    spent: Callable[[], bool],
) -> tuple[P | None, float]:
    """A point along p from `here`, and how far; None where there is none that is any better."""
    return line_search(
        lambda t: at(here.a + t * p),
        lambda point: float(point.gradient.dot(p)),
        here.value,
        slope,
        noise=noise,
        lowest=lowest,
        spent=spent,
    )


def update(inverse: Small, s: Small, y: Small) -> Small:
    """The BFGS update of the inverse Hessian; none where the curvature along s is not positive."""
    sy = float(s.dot(y))
    if not sy > EPS * (math.sqrt(s.dot(s)) * math.sqrt(y.dot(y))):
        return inverse
    By = inverse.dot(y)
    sBy, ss = s[:, None] * By, s[:, None] * s
    return np.asarray(inverse - (sBy + sBy.T) / sy + (1 + float(y.dot(By)) / sy) / sy * ss)
