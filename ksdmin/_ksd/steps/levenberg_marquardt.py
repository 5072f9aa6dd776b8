"""The step of a fit: few unknowns, and the whole Jacobian of the residuals on the host.

Problem: at x, with residuals r, their Jacobian R and the value F = |r|^2 / 2, find a step p within
a trust region |D p| <= radius that lowers F as its model predicts, with as few evaluations of
residuals and Jacobians as possible.

Algorithm: Levenberg and Marquardt's in the form of Moré (1978), in the variables D x. D has the
largest length so far of each column of R, so that units of variables change nothing. One singular
value decomposition of R D^-1 gives the step for every radius. Four things differ.

- The first radius is |D x|: a first step changes the variables by no more than their own size.
  (MINPACK's is 100 times that, and sends some fits to where the model is constant.)
- A run does not end with a D so large that rounding hides a column as it is now: it goes on with
  the lengths that columns have now. (A fit of a exp(b t) that begins with a b much too large would
  end at a = 0.)
- The residuals at a trial point show how they bend along the step. If a step did not gain what was
  predicted, they correct it: p <- -(R^T R + l D^2)^-1 R^T (r(x + p) - R p). The first correction
  is, to second order, the geodesic acceleration of Transtrum and Sethna (2012). It costs one more
  evaluation of residuals, and saves a Jacobian.
- If residuals stay large, the model has a secant estimate S of the Hessian minus R^T R (Dennis, Gay
  and Welsch 1981: NL2SOL). Both models, with S and without, predict every step; the better one
  makes the next.

Bounds: variables that the gradient presses against a bound stay there. A variable that a step would
take across its bound is put on it, and the step is computed again for the others.

Tests of convergence do not depend on units (`fit_tests.py`).
"""

from __future__ import annotations

import math
import sys
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ksdmin._ksd.line_search import ARMIJO, MARGIN, MAX_FACTOR
from ksdmin._ksd.sparse_model import FIRST_SHIFT, SparseModel
from ksdmin._ksd.state import Fit, KSDRun, KSDState
from ksdmin._ksd.trust_region import (
    GaussNewtonModel,
    Indices,
    QuadraticModel,
    length_of,
    without_zeros,
)
from ksdmin._problem.arrays import EPS, Small
from ksdmin._problem.differences import LONGER
from ksdmin._problem.protocol import Jacobian
from ksdmin._problem.residuals import FEW_UNKNOWNS
from ksdmin._problem.structure import SparseRows, Structure
from ksdmin._problem.values import changed
from ksdmin._result import Record, Status
from ksdmin._run.evaluator import Evaluated, Evaluator
from ksdmin._run.fit_tests import FitTests, Held
from ksdmin._run.levenberg_marquardt import GOOD, POOR
from ksdmin._run.run import write_record

NAME = "gauss-newton"  # these steps count as this kind, too
# As Moré has it, a step is taken if it gains the share `ARMIJO` of the prediction; below `POOR` the
# radius shrinks, at most to this share; above `GOOD` it grows.
LEAST_SHRINKAGE = 1 / MAX_FACTOR
# A correction may have at most this share of the length of the last one, or of the step. (GSL has
# the same limit for the acceleration: beyond it, the second order does not correct.)
CONTRACTION = 0.75
# A model is replaced if the other one was so many times as exact; the Gauss-Newton model only if
# its step was not a good one, too: otherwise it converges as fast, and is more robust.
MORE_EXACT = 3.0
# Below this, products of slopes underflow.
LEAST_SLOPE = sys.float_info.min**0.5
NO_GRADIENT = Held(
    Status.NOT_FINITE, "The value is lower at a point near by, where the Jacobian is not finite."
)
BLIND = Held(
    Status.PRECISION_LOSS,
    "Finite differences change no residual, though not all are zero: rounding hides changes, or "
    "fun is constant around x. Pass jac, or longer steps (diff_step), or start elsewhere.",
)

Model = QuadraticModel | SparseModel


class Prediction(NamedTuple):
    """What was expected of a step."""

    model: Model  # what made it
    predicted: float  # the gain that this predicts
    other: float  # the gain that the model predicts which differs from it by S
    length: float  # |D p|
    full: bool  # whether it leads to the minimum of the model


class Tried(NamedTuple):
    """A trial point, its step, and value and residuals there."""

    x: Small
    p: Small
    value: float
    residuals: Small


def first_fit(run: KSDRun, evaluator: Evaluator, here: Evaluated) -> Fit | None:
    """The Fit before the first step; None if the run is not of this kind."""
    space = run.space
    sparse = evaluator.problem.has_sparse_jacobian
    few = evaluator.traits.has_jacobian and space.n <= FEW_UNKNOWNS
    if run.sampled or not (few or sparse):
        return None
    own = space.numpy and not space.hosted and space.eps == EPS
    if not own or not run.applies(NAME) or not math.isfinite(here.value):
        return None
    scale = evaluator.problem.variable_scale
    return Fit(
        scale=np.zeros(space.n) if scale is None else scale,
        radius=math.nan,
        shift=FIRST_SHIFT if sparse else 0.0,
        bend=np.zeros((0, 0) if sparse else (space.n, space.n)),
        tests=changed(FitTests.of(run.options), first=here.value),
        scaled=scale is not None,
    )


def fit_step(run: KSDRun, state: KSDState, fit: Fit) -> KSDState:
    """The state after one step.

    If a test of convergence holds at the point, only that is recorded. If there are no rows after
    all, the state has no Fit.
    """
    here = state.here
    with run.evaluating(state.ledger, limited=True) as evaluator:
        if len(fit.bend):
            jacobian = evaluator.jacobian(here.x, here.idx)
        else:
            jacobian = evaluator.sparse_jacobian(here.x, here.idx, fit.reweighting)
        if jacobian is None or jacobian.at is None or jacobian.has_penalty:
            return changed(state, fit=None, ledger=evaluator.ledger)
        point = Point(run, jacobian, here, fit)
        held = fit.tests.of_point(point.cosine)
        if held is not None and evaluator.problem.sees_nothing and point.is_blind:
            return changed(state, fit=changed(fit, held=BLIND), ledger=evaluator.ledger)
        if held is not None and point.confirms(fit.tests):
            after = changed(state, fit=changed(fit, held=held), ledger=evaluator.ledger)
        else:
            after = Search(run, evaluator, state, point).next_state()
        return point.unhidden(after)


class Point:
    """Where a step begins: the models there."""

    def __init__(self, run: KSDRun, jacobian: Jacobian, here: Evaluated, fit: Fit) -> None:
        rows: Any = jacobian.rows
        self.r, self.at = jacobian.residuals, jacobian.at
        self.x, self.g, self.value, self.S = here.x, here.gradient, here.value, fit.bend
        sparse = isinstance(rows, SparseRows)
        self.R = rows.matrix if sparse else rows
        self.structure: Structure | None = rows.structure if sparse else None
        self.weights = rows.weights if sparse else None
        self.lengths = column_lengths(self.R)
        self.D = without_zeros(fit.scale if fit.scaled else np.maximum(fit.scale, self.lengths))
        self.box, self.free = run.box, None
        if run.box is not None:
            held = run.box.held(here.x, here.gradient) | (run.box.lower == run.box.upper)
            self.free = np.flatnonzero(~held) if held.any() else None

    @cached_property
    def plain(self) -> GaussNewtonModel | SparseModel:
        """The model without S."""
        return self._model(self.r, self.free)

    def _model(self, r: Small, free: Indices | None) -> GaussNewtonModel | SparseModel:
        if self.structure is not None:
            return SparseModel(self.R, r, self.D, free, self.structure)
        return GaussNewtonModel(self.R, r, self.D, free)

    @property
    def cosine(self) -> float:
        """The largest cosine between the residuals and a column of a variable that may move."""
        norm = math.sqrt(2 * self.value) if self.value > 0 else 0.0  # |r|, except for robust losses
        cosines = np.abs(self.g) / without_zeros(self.lengths)
        if self.free is not None:
            cosines = cosines[self.free]
        largest = cosines[cosines.argmax()] if cosines.size else 0.0
        return float(largest) / norm if norm > 0 else 0.0

    @property
    def is_blind(self) -> bool:
        """Whether no residual depends on a variable that may move, though not all are zero."""
        own = self.lengths if self.free is None else self.lengths[self.free]
        return bool(own.size and not own.any() and self.r.any())

    def confirms(self, tests: FitTests) -> bool:
        """Whether the predicted gain is no more than a test of convergence allows."""
        if not self.g.any() or (self.free is not None and not self.free.size):
            return True
        limit = max(tests.share * abs(self.value), self.rounding)
        return self.plain.full_reduction(0.0, limit) <= limit

    @cached_property
    def rounding(self) -> float:
        """The change of the value that rounding of the variables alone may cause."""
        return self.rounding_of(self.x)

    def rounding_of(self, x: Small) -> float:
        """The same for other variables, which may be far larger."""
        return EPS * float(np.abs(self.r) @ (abs(self.R) @ np.abs(x)))

    def unhidden(self, after: KSDState) -> KSDState:
        """The state after a step; it is no end if D hides a column."""
        fit = after.fit
        if fit is None or fit.scaled or (fit.held is None and not fit.stuck):
            return after
        hidden = (self.lengths > 0) & (self.lengths < EPS**0.5 * self.D)
        if not hidden.any():
            return after
        again = changed(fit, scale=self.lengths, radius=math.nan, held=None, stuck=False)
        return changed(after, fit=again)

    def model(self, bends: bool) -> Model:
        """The model of the next step, with S or without."""
        return self.plain.bent(self.S) if bends else self.plain

    def within_bounds(self, p: Small, bends: bool, radius: float, shift: float) -> Small:
        """The part of p that bounds allow: the variables that do not cross one."""
        box = self.box
        if box is None or box.contains(self.x + p):
            return p
        free = np.arange(len(p)) if self.free is None else self.free
        moved = np.zeros_like(p)
        while free.size:
            ends = box.project(self.x + p)
            across = free[(self.x + p != ends)[free]]
            if not across.size:
                break
            moved[across] = (ends - self.x)[across]
            free = np.setdiff1d(free, across)
            left = radius**2 - float(((self.D * moved) ** 2).sum())
            if not free.size or not left > 0:
                return moved
            rest: Model = self._model(self.r + self.R @ moved, free)
            rest = rest.bent(self.S) if bends else rest
            p = moved + rest.step(math.sqrt(left), shift)[0]
        return np.asarray(box.project(self.x + p) - self.x)

    def reductions(self, p: Small) -> tuple[float, float]:
        """The gains that the models without and with S predict for p."""
        change = self.R.dot(p)
        plain = -float(self.g.dot(p)) - float(change.dot(change)) / 2
        return plain, plain - float(p.dot(self.S).dot(p)) / 2 if len(self.S) else plain


class Search:
    """The search for a step that is taken."""

    def __init__(self, run: KSDRun, evaluator: Evaluator, state: KSDState, point: Point) -> None:
        self._run, self._evaluator, self._state, self._point = run, evaluator, state, point
        fit: Fit = state.fit  # type: ignore[assignment]
        self._fit, self._radius, self._shift, self._bends = fit, fit.radius, fit.shift, fit.bends
        self._size = length_of(point.D * point.x)
        self._first = math.isnan(fit.radius)
        if self._first:
            self._radius = self._size or length_of(point.r)
        self._tries, self._other_was_tried = 0, False
        self._refused = False  # a lower value, in case the gradient is not finite
        self._error = MARGIN * evaluator.gradient_error

    def next_state(self) -> KSDState:
        """The state after the step, or at the end of the run."""
        point, evaluator = self._point, self._evaluator
        model = point.model(self._bends)
        hidden = min(self._fit.tests.ftol, evaluator.noise) * abs(point.value)
        if model.full_reduction(self._error, hidden) <= hidden:  # values cannot decide
            return self._ended(model)
        while self._radius > EPS * EPS * self._size and not evaluator.spent():
            p, shift, length = model.step(self._radius, self._shift)
            whole, p = p, point.within_bounds(p, self._bends, self._radius, shift)
            plain, bent = point.reductions(p)
            predicted, other = (bent, plain) if self._bends else (plain, bent)
            if self._first:
                self._radius, self._first = min(self._radius, length), False
            if not predicted > 0:
                if not length:
                    break
                self._shrink(LEAST_SHRINKAGE, length, shift)
                continue
            tried = self._tried(p)
            if not self._bends and p is whole:
                tried = self._corrected(tried, shift, length, predicted)
            actual = point.value - tried.value
            gain = actual / predicted
            if gain >= ARMIJO:
                there = evaluator.evaluate(tried.x, self._state.here.idx, diagonal=False)
                if math.isfinite(self._run.space.max_abs(there.gradient)):
                    self._adapt_radius(gain, tried, length, shift)
                    expected = Prediction(model, predicted, other, length, full=shift == 0)
                    return self._taken(tried, there, expected)
                gain, self._refused = -math.inf, True
            elif self._at_the_end(model, predicted):
                break
            better = self._other_is_better(predicted, other, actual)
            if better and not self._other_was_tried and math.isfinite(tried.value):
                self._other_was_tried, self._bends = True, not self._bends
                model = point.model(self._bends)
            else:
                self._adapt_radius(gain, tried, length, shift)
        return self._ended(model)

    def _tried(self, p: Small) -> Tried:
        self._tries += 1
        point = self._point
        x = point.x + p
        if point.box is not None:
            x = point.box.landed(x, point.x)
        value, residuals = point.at(x)  # type: ignore[misc]
        return Tried(x, p, value if math.isfinite(value) else math.inf, residuals)

    def _corrected(self, tried: Tried, shift: float, length: float, predicted: float) -> Tried:
        """The trial point, corrected as long as corrections get shorter and lower the value."""
        point, best, last = self._point, tried, length
        while best.value > point.value - GOOD * predicted and math.isfinite(best.value):
            p = point.plain.solved(best.residuals - point.R @ best.p, shift)
            if point.box is not None:
                p = point.box.project(point.x + p) - point.x
            change = length_of(point.D * (p - best.p))
            if not EPS * length < change <= CONTRACTION * last or self._evaluator.spent():
                break
            tried, last = self._tried(p), change
            if not tried.value < best.value:
                break
            best = tried
        return best

    def _at_the_end(self, model: Model, predicted: float) -> bool:
        """Whether a failed step shows the end: rounding hides the predicted gain."""
        value = abs(self._point.value)
        noise = max(self._evaluator.noise * value, self._point.rounding)
        limit = self._fit.tests.ftol * value
        return predicted <= noise or model.full_reduction(self._error, limit) <= limit

    def _other_is_better(self, predicted: float, other: float, actual: float) -> bool:
        """Whether the model that did not make the step predicted its gain better."""
        error = abs(predicted - actual)
        if not self._bends and error <= (1 - GOOD) * predicted:
            return False
        return bool(self._point.S.any()) and MORE_EXACT * abs(other - actual) < error

    def _adapt_radius(self, gain: float, tried: Tried, length: float, shift: float) -> None:
        if gain <= POOR:
            actual = self._point.value - tried.value
            share = 0.5
            if actual < 0:  # the minimum of the parabola through both values and the slope
                slope = float(self._point.g @ tried.p)
                share = slope / (2 * (slope + actual)) if actual > -math.inf else 0.0
            self._shrink(min(max(share, LEAST_SHRINKAGE), 0.5), length, shift)
        elif shift == 0 or gain >= GOOD:
            self._radius, self._shift = 2 * length, shift / 2
        else:
            self._shift = shift

    def _shrink(self, share: float, length: float, shift: float) -> None:
        radius = share * min(self._radius, length / LEAST_SHRINKAGE)
        self._radius = min(radius, length / 2)  # the full step that failed may be much shorter
        self._shift = shift / share

    def _taken(self, tried: Tried, there: Evaluated, expected: Prediction) -> KSDState:
        """The state after a step that is taken."""
        run, state, point, fit = self._run, self._state, self._point, self._fit
        model, predicted, other, length, full = expected
        actual = point.value - tried.value
        if self._other_is_better(predicted, other, actual):
            self._bends = not self._bends
        size, tests = length_of(point.D * there.x), fit.tests
        limit = tests.ftol * abs(point.value)
        # What the error of differences hides counts until a full step was tried.
        error = self._error if full else 0.0
        promised = model.full_reduction(error, limit) if actual <= limit else math.inf
        if isinstance(model, SparseModel) and length <= tests.xtol * size:
            length, full = model.full_length(self._error), True
        held = tests.of_step(actual, promised, point.value, length if full else math.inf, size)
        if held is not None and self._error and point.plain.unseen(self._error):
            held = None  # a step shows nothing of slopes that differences hide
        held = held or tests.of_value(tried.value)
        moved = run.space.norm(there.x - point.x)
        if self._refused:  # a short step shows nothing of that
            norms = moved, run.space.norm(there.x)
            held = held or tests.of_step(actual, 0.0, point.value, *norms)
            held = NO_GRADIENT if held is not None else None
        fit = changed(
            fit,
            scale=point.D,
            radius=self._radius,
            shift=self._shift,
            bend=updated_bend(point, tried, there.gradient),
            bends=self._bends,
            held=held,
            stuck=False,
        )
        if point.weights is not None:
            fit = changed(fit, reweighting=next_reweighting(point, tried, *point.weights))
        norm = run.stationarity(there.x, there.gradient)
        return changed(
            state,
            here=there,
            gradient_norm=norm,
            last_decrease=actual,
            record=self._record(there, norm, moved),
            fit=fit,
            ledger=self._evaluator.ledger,
        )

    def _ended(self, model: Model) -> KSDState:
        """The state if no step is taken: a test holds, the budget is spent, or the run is stuck."""
        evaluator, fit, point, value = self._evaluator, self._fit, self._point, self._point.value
        if evaluator.spent():
            return self._stopped(fit)
        if self._refused:
            return self._stopped(changed(fit, held=NO_GRADIENT))
        limit = fit.tests.ftol * abs(value)
        held = fit.tests.of_end(model.full_reduction(0.0, limit), value, 0.0)
        unsure = held is None or bool(self._error and point.plain.unseen(self._error))
        if unsure and evaluator.traits.has_finer_arithmetic and evaluator.refine():
            # The same point with a finer Jacobian: the error of this one may be the reason.
            old = self._state.here
            here = evaluator.evaluate(old.x, old.idx, diagonal=False)
            norm = self._run.stationarity(here.x, here.gradient)
            # The radius begins anew: steps that failed for the error have made it short.
            after = self._stopped(changed(fit, bends=False, radius=math.nan))
            return changed(after, here=here, gradient_norm=norm)
        predicted = model.full_reduction(self._error)
        held = held or fit.tests.of_end(predicted, value, 0.0) or fit.tests.of_point(point.cosine)
        share = EPS**0.5 if evaluator.gradient_error else evaluator.noise
        hidden = max(point.rounding, share * abs(value))
        held = held or fit.tests.of_end(predicted, value, hidden)
        further = self._further() if self._error else None
        if further is not None:
            return further
        return self._stopped(changed(fit, held=held, stuck=held is None))

    def _further(self) -> KSDState | None:
        """The state after a step that differences hide; None if there seems to be none.

        If columns are equal up to the error of differences, the slope along some direction is not
        known, and a test that holds says nothing about it. Longer and longer differences along the
        direction show the slope, if there is any.
        """
        point, evaluator = self._point, self._evaluator
        if point.box is not None or not point.value > 0:
            return None
        size = max(self._size, length_of(point.r))
        for v in point.plain.unseen(self._error):
            h = self._error * size
            while h < size / EPS and not evaluator.spent():
                with np.errstate(all="ignore"):  # far away, residuals may be infinite
                    found = self._found_along(v, h)
                if found is not None:
                    tried, predicted, length = found
                    there = evaluator.evaluate(tried.x, self._state.here.idx, diagonal=False)
                    self._radius, self._shift = length, 0.0
                    expected = Prediction(point.plain, predicted, predicted, length, full=False)
                    return self._taken(tried, there, expected)
                h *= LONGER
        return None

    def _found_along(self, v: Small, h: float) -> tuple[Tried, float, float] | None:
        """The point that differences of step h along v lead to, with its prediction and distance.

        None if they show no slope, or if the gain may be rounding of variables that are far larger.
        """
        point = self._point
        least = max(self._fit.tests.ftol, self._evaluator.noise) * point.value
        ahead, behind = self._tried(h * v).residuals, self._tried(-h * v).residuals
        slope = (ahead - behind) / (2 * h)
        square, along = float(slope @ slope), float(slope @ point.r)
        if not (square > 0 and along * along > 2 * least * square):
            return None
        tried, predicted = self._tried(-along / square * v), along * (along / square) / 2
        enough = max(GOOD * predicted, point.rounding_of(tried.x))
        if not point.value - tried.value >= enough:
            return None
        return tried, predicted, abs(along / square)

    def _stopped(self, fit: Fit) -> KSDState:
        state = self._state
        record = self._record(state.here, state.gradient_norm, 0.0)
        return changed(state, fit=fit, record=record, ledger=self._evaluator.ledger)

    def _record(self, here: Evaluated, norm: float, step_norm: float) -> Record:
        return write_record(
            self._evaluator,
            self._state.record.iteration + 1,
            here,
            norm,
            self._state.sets,
            step_norm=step_norm,
            dim=1,
            inner_iterations=self._tries,
            accepted=step_norm > 0,
            kind=NAME,
        )


def column_lengths(R: Any) -> Small:
    """The Euclidean norms of the columns, which may be dense or sparse."""
    with np.errstate(over="ignore"):
        dense = isinstance(R, np.ndarray)
        squares = np.einsum("ij,ij->j", R, R) if dense else R.power(2).sum(0)
    largest = abs(R).max() if squares.max() == math.inf else 1.0
    if not 1.0 < largest < math.inf:
        return np.asarray(np.sqrt(squares))
    return largest * column_lengths(R / largest)


def updated_bend(point: Point, tried: Tried, gradient: Small) -> Small:
    """S after the step, so that S p is the part of the gradient's change due to the Jacobian's.

    The update of Dennis, Gay and Welsch; S is first made smaller if it was too large along p.
    """
    S, p = point.S, tried.p
    if not len(S):  # too many unknowns
        return S
    wanted = gradient - tried.residuals @ point.R
    change = gradient - point.g
    Sp, slope = S.dot(p), float(change.dot(p))
    along_change = EPS * length_of(change) * length_of(p)
    if not max(along_change, LEAST_SLOPE) < abs(slope) < math.inf:
        return S
    along = float(p.dot(Sp))
    if along:
        size = min(1.0, abs(float(wanted.dot(p)) / along))
        S, Sp = size * S, size * Sp
    missing = wanted - Sp
    half = missing / slope - float(missing.dot(p)) / slope / (2 * slope) * change
    cross = half[:, None] * change
    S = S + cross + cross.T
    return S if math.isfinite(np.vdot(S, S)) else np.zeros_like(S)


def next_reweighting(point: Point, tried: Tried, least: Small, most: Small) -> float:
    """The weights, between the least and the largest, that would have predicted the gain."""
    change = (point.R @ tried.p) ** 2
    low, high = float(least @ change), float(most @ change)
    wanted = 2 * (tried.value - point.value - float(point.g @ tried.p))
    return min(max((wanted - low) / (high - low), 0.0), 1.0) if high > low else 1.0
