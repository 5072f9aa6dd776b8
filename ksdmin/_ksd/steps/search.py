"""The search within a subspace: whitening, the objective, BFGS (Algorithm 3, lines 7 to 12)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import OptimizeWarning

from ksdmin._ksd.cost_model import MATRIX_IN_GRADIENTS
from ksdmin._ksd.factor import largest_entry
from ksdmin._ksd.krylov import Basis
from ksdmin._ksd.line_search import MAX_FACTOR, contradicted, line_search
from ksdmin._ksd.outcome import Trial
from ksdmin._ksd.state import KSDRun, KSDState
from ksdmin._ksd.steps.kind import Turn
from ksdmin._ksd.trust_region import length_of
from ksdmin._problem.arrays import EPS, Array, Small
from ksdmin._problem.box import Box
from ksdmin._problem.values import made
from ksdmin._run.evaluator import Evaluated, Evaluator

# The inner search ends if its next iteration is predicted to gain less than this share of the gain
# so far. Measured by examples/benchmarks/ablation.py: 0.005 takes 4% more work on 74 classic
# problems and leaves nets 17% more excess loss, 0.1 changes these by -3% and -7%, within chance.
SMALL_GAIN = 0.02
# The relative deviation from the ratio of the numbers of samples that chance may explain.
NEAR = 0.25
FEW = 10  # on fewer samples, a mean may be anything


def search(turn: Turn, kind: str, basis: Basis) -> Trial:
    """The minimum of the objective on C within the subspace."""
    run, evaluator, state, _ = turn
    here, damping = state.here, state.damping
    if basis.dim == 0:  # no slope on this A, and no previous direction
        return Trial(kind, here.x, None, here.value, here.gradient, 0.0, 0.0, 0, 0, basis=basis)
    lengths = damping > 0 or (run.box is not None and state.C_is_other)
    gram = basis.gram(run.space) if lengths else None
    H_hat = positive_curvature(run, evaluator, basis, damping, gram)  # Alg. 3, line 7
    whitening = Whitening(H_hat)  # lines 8 and 9
    phi = SubspaceObjective(
        evaluator,
        here,
        state.sets.C,
        basis,
        whitening,
        tilted=run.preset.tilted,
        damping=damping,
        gram=gram,
        box=run.box,
    )
    origin, steepest, slope_noise = phi.start(), largest_entry(basis.H_bar), 0.0
    if evaluator.gradient_error:  # from rounding of the values, and from curvature
        error = evaluator.gradient_error * max(1.0, run.space.max_abs(here.x))
        slope_noise = error * (abs(here.value) + steepest) * whitening.gain
    if state.record.iteration == 0:
        warn_if_sum(run, state, basis, origin)
    found, iterations = bfgs(  # lines 10 and 11
        phi.at,
        origin,
        maxiter=run.inner_maxiter,
        noise=evaluator.noise * abs(origin.value),
        slope_noise=slope_noise,
        lowest=state.lowest,
        enough=end_of_search(turn, basis),
        dear=first_search_limit(evaluator, state, basis.dim),
        spent=lambda: phi.astray or evaluator.spent(),
    )
    return made(
        Trial,
        kind=kind,
        x=found.x,
        d=None if found is origin else found.x - here.x,  # line 12
        value=found.loss,
        gradient=found.whole_gradient,
        predicted=origin.value - found.value + phi.damped(found.c),
        model_reduction=basis.decrease(found.c),
        inner_iterations=iterations,
        dim=basis.dim,
        steepest=steepest,
        basis=basis,
    )


def first_search_limit(
    evaluator: Evaluator, state: KSDState, dim: int
) -> Callable[[], bool] | None:
    """Whether the first search has spent what it may, if slopes are made of differences.

    The first step may cost as many gradients as a first matrix; its space has taken up to half of
    them (``_ksd/rules/space.py``). The gradient at x0 shows what one costs. The cost of the slopes
    and the gradient at the last point is kept in reserve.
    """
    start = state.record
    if start.iteration or not evaluator.gradient_error or state.curvature_is_sampled:
        return None
    limit = MATRIX_IN_GRADIENTS * start.nfev - dim
    return lambda: evaluator.counts.nfev >= limit


def end_of_search(turn: Turn, basis: Basis) -> Callable[[float, float], bool]:
    """When the search ends early: its next iteration would gain less than its share.

    In a sum of losses the share is at least that of the step's cost: sums of losses then take 0.965
    of the passes (0.984 on the half set aside). Plain functions would take 2% less work, but some,
    such as Rosenbrock's of 100 unknowns, would end in a higher minimum.
    """
    enough = turn.run.preset.stop_inner_search
    if not turn.run.sampled:
        return lambda predicted, gained: enough(predicted, gained, SMALL_GAIN)
    share = share_of_cost(turn, basis)
    return lambda predicted, gained: enough(predicted, gained, max(SMALL_GAIN, share()))


def share_of_cost(turn: Turn, basis: Basis) -> Callable[[], float]:
    """The cost of an iteration of the search, as a share of the step's cost with that of its end.

    Cost is counted in gradients of a sample. A matrix that is not made of products counts as those
    that it replaces.
    """
    run, evaluator, state, costs = turn
    of_step = state.here.idx, state.sets.B, state.sets.C
    A, B, C = (run.subsets.size_of(idx) or 1 for idx in of_step)
    start, counts = state.record, evaluator.counts
    known = float((counts.nhev - start.nhev) * B + (A if state.C_is_other else 0))
    if basis.of_matrix and costs is not None and not costs.of_products:
        known = A * costs.replaced(run.dims.whole_dim) / costs.gradient
    values = 1 + basis.dim if evaluator.gradient_error else 1  # slopes by differences
    return lambda: C / max(C, known + (counts.nfev - start.nfev) / values * C)


def positive_curvature(
    run: KSDRun, evaluator: Evaluator, basis: Basis, damping: float, gram: Small | None
) -> Small:
    """H_hat: H_bar with its eigenvalues made positive, plus the damping."""
    floor = max(run.floor, evaluator.product_error)  # below this, H_bar is noise
    H_hat = run.preset.spectrum(
        basis.H_bar, floor, lambda: basis.gram(run.space) if gram is None else gram
    )
    if not damping:
        return H_hat
    return H_hat + damping * (np.eye(basis.dim) if gram is None else gram)


def warn_if_sum(run: KSDRun, state: KSDState, basis: Basis, origin: SubspacePoint) -> None:
    """Warn if value and slope at the start grow with the number of samples, as sums do.

    Those on A are compared with those on C. A mean has about the same on both; if its value is near
    zero, the ratio of values may be anything, but not that of slopes as well.
    """
    here, size_of = state.here, run.subsets.size_of
    size_A, size_C = size_of(here.idx), size_of(state.sets.C)
    if run.subsets.n is None or not size_A or not size_C:
        return
    if size_C < FEW or NEAR * size_A < size_C:  # chance can look like a sum
        return
    steepest = abs(basis.g_bar).argmax()
    slope = 0.0 if origin.slopes is None else float(origin.slopes[steepest])
    pairs = [(here.value, origin.loss), (float(basis.g_bar[steepest]), slope)]
    times = size_A / size_C
    if all(abs(on_A - times * on_C) < NEAR * abs(times * on_C) for on_A, on_C in pairs):
        warnings.warn(
            f"fun(x, idx) must be the mean over idx, not the sum: at x0 it is "
            f"{here.value / origin.loss:.3g} times as large on {size_A} samples as on {size_C}. "
            "Divide by the number of rows in idx (len(X[idx])), in jac and hessp as well",
            OptimizeWarning,
            stacklevel=2,
        )


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
        """By which factor an error in g_bar can grow in the gradient with respect to a."""
        return float(np.linalg.norm(self._inverse))

    def coefficients(self, a: Small) -> Small:
        """L^-T a: the coefficients of `a` in the rows of V."""
        coefficients: Small = a.dot(self._inverse)
        return coefficients

    def gradient(self, g_bar: Small) -> Small:
        """L^-1 g_bar: the gradient with respect to a."""
        gradient: Small = self._inverse.dot(g_bar)
        return gradient


class SubspaceObjective:
    """phi(a) = f_C(x + V L^-T a), the objective of the inner search.

    With `tilted`, a linear term makes the slope of phi at zero that of the gradient on A, from
    which the basis was built: f_C(x + d) + <g_A - g_C, d>. This term has no bound: where the loss
    saturates, a search would follow it to infinity. So a search has gone `astray` at a point many
    times as far as the minimum of the model, where phi is lower but f_C is not. It ends there: C
    does not show what A is like, and if the step is refused, the sets grow. `damping` adds its
    share of |d|^2 / 2; `gram` is V V^T if that is needed and is not the identity. With bounds the
    path is projected onto the box; both terms are then of the real displacement, as far as it lies
    in the subspace.
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
        self._far, self.astray = math.inf, False
        # Slopes without the whole gradient are always cheaper by differences. Otherwise they pay
        # unless A serves as C: then the next iteration needs that gradient. (But if it computes a
        # diagonal, it computes the gradient, too.)
        traits, same = evaluator.traits, C is here.idx
        unused = traits.gradient_travels and traits.has_diagonal and not basis.of_matrix
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
            self._far = MAX_FACTOR * length_of(whitening.gradient(basis.g_bar))

    def start(self) -> SubspacePoint:
        """Where the search begins; a new object each time, to avoid a reference cycle."""
        value, g, slopes = self._at_zero
        nothing = np.zeros(self._basis.dim)
        return SubspacePoint(self, nothing, nothing, self._x, value, value, g, slopes, None)

    def at(self, a: Small) -> SubspacePoint:
        """Evaluate at `a`: the value now, the gradient along with it or when it is needed."""
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
        before = self._at_zero[0]
        if value < before < loss and length_of(a) > self._far:
            self.astray = True
        return SubspacePoint(self, a, c, x, loss, value, g, slopes, stopped)

    def damped(self, c: Small) -> float:
        """The damping term at `c`."""
        return float(c @ self._damping_slopes(c)) / 2 if self._damping else 0.0

    def _damping_slopes(self, c: Small) -> Small:  # damping V d, where d = V c
        return self._damping * (c if self._gram is None else self._gram @ c)

    def _along(self, slopes: Small) -> Small:  # c of a displacement d = V^T c, from V d
        return slopes if self._gram is None else np.linalg.solve(self._gram, slopes)

    def _evaluate(self, x: Array) -> tuple[float, Array | None, Small | None]:
        """f_C; and its gradient, or its slopes along V, if they come with the value."""
        if self._evaluator.traits.separate_gradient:
            return self._evaluator.value(x, self._C), None, None
        if self._projects:
            value, slopes = self._evaluator.value_and_slopes(x, self._C, self._basis.V)
            return value, None, slopes
        return *self._evaluator.value_and_gradient(x, self._C), None

    def gradient(self, point: SubspacePoint) -> tuple[Small, Array | None]:
        """The gradient of phi with respect to a; and that of f_C, if it was computed."""
        stopped = point.stopped
        slopes, g = self._slopes(point.x, point.whole_gradient, point.slopes, stopped)
        if self._clips and stopped is not None and self._box is not None:
            added = self._along(self._tilt + self._damping_slopes(point.c))
            d = self._evaluator.space.combine(self._basis.V, added)
            slopes = slopes + self._along_basis(self._box.without(d, stopped))
        elif self._damping:
            slopes = slopes + self._tilt + self._damping_slopes(point.c)
        else:
            slopes = slopes + self._tilt
        return self._whitening.gradient(slopes), g

    def _along_basis(self, u: Array) -> Small:
        """The products of a vector with the rows of V."""
        space = self._evaluator.space
        return space.to_host(space.inner(self._basis.V, u))[0]

    def _slopes(
        self, x: Array, g: Array | None, known: Small | None, stopped: Array | None
    ) -> tuple[Small, Array | None]:
        """V^T g without the variables that a bound has `stopped`; and g, if it was computed."""
        if known is not None:
            return known, g
        if g is None and self._projects:
            return self._evaluator.value_and_slopes(x, self._C, self._basis.V)[1], None
        if g is None:
            g = self._evaluator.value_and_gradient(x, self._C)[1]
        moving = g if stopped is None or self._box is None else self._box.without(g, stopped)
        return self._along_basis(moving), g


@dataclass(slots=True, eq=False)
class SubspacePoint:
    """A point of the subspace where the objective has been evaluated."""

    objective: SubspaceObjective
    a: Small  # the point in whitened co-ordinates
    c: Small  # the same in terms of the rows of V
    x: Array  # the same in the whole space
    loss: float  # f_C there
    value: float  # phi there
    whole_gradient: Array | None  # that on C in the whole space, where it was computed
    slopes: Small | None  # V^T g, where it came with the value
    stopped: Array | None  # within a box, which variables a bound has stopped on the way
    _gradient: Small | None = None

    @property
    def gradient(self) -> Small:
        """The gradient of phi with respect to a; computed when it is first needed."""
        if self._gradient is None:  # (a cached_property locks, which takes longer than this)
            self._gradient, self.whole_gradient = self.objective.gradient(self)
        return self._gradient


# The inner search: BFGS


def bfgs(
    at: Callable[[Small], SubspacePoint],  # evaluates phi
    start: SubspacePoint,  # with finite value and gradient
    *,
    maxiter: int,
    noise: float,  # the absolute rounding error of the values
    slope_noise: float = 0.0,  # the absolute error of the gradient, where it is got by differences
    lowest: float = -np.inf,  # a value at which the search has fallen far enough
    # (predicted, gained) -> whether to stop, from the reduction that the model predicts for the
    # next iteration and the one gained so far.
    enough: Callable[[float, float], bool] = lambda predicted, gained: False,
    spent: Callable[[], bool] = lambda: False,  # whether the budget of the run is used up
    # Whether the search has cost so much that it should end once it has found anything.
    dear: Callable[[], bool] | None = None,
) -> tuple[SubspacePoint, int]:
    """Minimise within the subspace: few variables, a noisy objective, expensive evaluations.

    Problem: minimise phi(a) over a in R^m, from a point where phi and its gradient are known, m
    being the dimension of the subspace. Each evaluation is a pass over data, and phi carries
    rounding noise: values that differ by less than `noise` are equal.

    Algorithm: BFGS in float64 from the unit matrix (the co-ordinates are whitened, so that the
    first trial is the Newton step of the subspace), with a weak Wolfe line search. It ends when the
    gradient has vanished, when the reduction that its model predicts is lost in the noise, when
    `enough` says that more would gain too little, or after `maxiter` iterations.

    Returns the best point, `start` itself where nothing better was, and the number of iterations.
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
        there, t = line_search(
            lambda t, a=here.a, p=p: at(a + t * p),  # type: ignore[misc]
            lambda point, p=p: float(point.gradient.dot(p)),  # type: ignore[misc]
            here.value,
            slope,
            noise=noise,
            lowest=lowest,
            spent=ended,
        )
        exact = iteration == 0 and not slope_noise
        if exact and there is not None and contradicted(t, start, there, predicted, noise):
            return start, 0
        if there is not None:
            if there.value <= lowest:
                return there, iteration + 1
            after = there.gradient
            if there.value == here.value and np.array_equal(after, g):
                return here, iteration  # rounding hides the step, at a kink: x is where it was
            inverse = update(inverse, there.a - here.a, after - g)
            here, g, fresh = there, after, False
        elif fresh:
            return here, iteration
        else:  # discard the approximation, and try steepest descent once
            inverse, fresh = np.eye(len(g)), True
    return here, maxiter


def update(inverse: Small, s: Small, y: Small) -> Small:
    """The BFGS update of the inverse Hessian; none if the curvature along s is not positive."""
    sy = float(s.dot(y))
    if not sy > EPS * (math.sqrt(s.dot(s)) * math.sqrt(y.dot(y))):
        return inverse
    By = inverse.dot(y)
    sBy, ss = s[:, None] * By, s[:, None] * s
    return np.asarray(inverse - (sBy + sBy.T) / sy + (1 + float(y.dot(By)) / sy) / sy * ss)
