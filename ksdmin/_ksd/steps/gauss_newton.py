"""The Gauss-Newton step of a sum of squares: a Levenberg-Marquardt step, then corrected.

Problem: at x, with residuals r and their Jacobian R, find a step d with the best gain for its
work. The Levenberg-Marquardt step, with a damping l, solves

    R^T (r + R d) + l D d = 0,

where r + R d approximates the residuals r(x + d), to first order.

Algorithm: solve the same equation with the true residuals, R^T r(x + d) + l D d = 0, by fixed-point
iteration (D is that of ``_ksd/gauss_newton.py``):

    d_0 = -(R^T R + l D)^-1 R^T r,   d_k+1 = -(R^T R + l D)^-1 R^T (r(x + d_k) - R d_k).

Each correction costs the residuals at one more point, no derivative, and two triangular solves
with the same factor. (The first one is, to second order, the geodesic acceleration of Transtrum
and Sethna, 2012.) Corrections go on as long as they lower the loss by more, for their work, than
the step so far. If no point is lower, the damping grows and the Jacobian stays.

If not all rows fit into memory, R has the rows of a sample B, and the gradient g is still that of
all samples. Points are then compared by the loss on B with the slope of all samples,
L_B(x + d) + (g - g_B)^T d; only the last point of each damping by the loss on all samples.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ksdmin._ksd.cost_model import MarginalGain
from ksdmin._ksd.gauss_newton import GaussNewton
from ksdmin._ksd.outcome import NextDamping, Trial
from ksdmin._ksd.rules.whole_curvature import GaussNewtonDamping, Met, lowered
from ksdmin._ksd.state import KSDState
from ksdmin._ksd.steps.kind import Offer, Proposal, Turn
from ksdmin._options import MethodOptions
from ksdmin._problem.arrays import EPS, Array, Space, is_out_of_memory
from ksdmin._problem.protocol import Jacobian
from ksdmin._problem.values import changed, made
from ksdmin._run.evaluator import Evaluator
from ksdmin._run.fit_tests import FitTests, Held

log = logging.getLogger("ksdmin")

TESTS = FitTests.of(MethodOptions())  # no tolerance is given


NAME = "gauss-newton"


def offer(turn: Turn) -> Offer | None:
    """A step from the rows of the Jacobian, if they fit into memory.

    Only if gradient and search use the same set.
    """
    _, _, state, costs = turn
    if costs is None or not costs.rows or state.C_is_other:
        return None
    return Offer(partial(propose, turn)) if state.rules.gauss_newton.allowed else None


def propose(turn: Turn) -> Proposal:
    """The step; none if there is no Jacobian after all, or memory runs out.

    If memory runs out, there is none in the next iterations either. Several processes would have to
    agree on that: there it is an error.
    """
    try:
        return gauss_newton_step(turn)
    except Exception as error:
        if turn.run.team.size > 1 or not is_out_of_memory(error):
            raise
    # Outside `except`, because the traceback keeps references to what was computed.
    log.warning("out of memory: from here on steps have Krylov spaces, not the rows of a Jacobian")
    off = GaussNewtonDamping(allowed=False)
    return Proposal(turn.state.with_rules(gauss_newton=off), None)


@dataclass(frozen=True)
class Found:
    """The best point for one damping."""

    # The point, and the value there.
    x: Array
    value: float
    predicted: float  # the reduction that the linear model predicted for the first step
    curvature: float  # that of the linear model along it
    evaluations: int  # how many points were tried


def gauss_newton_step(turn: Turn) -> Proposal:
    """The step; none if there is no Jacobian after all, or if a test of convergence holds."""
    run, evaluator, state, _ = turn
    here, space, nothing = state.here, run.space, Proposal(state, None)
    free = run.movable(here)
    g = free(here.gradient)
    jacobian = evaluator.jacobian(here.x, state.sets.B)
    if jacobian is None or not space.max_abs(g):
        return nothing
    kept = None if run.box is None else free(space.xp.ones_like(here.x))
    equations = GaussNewton(space, jacobian, g, kept, state.rules.gauss_newton.whole_below)
    if not 0 < equations.scale < math.inf:  # zero: losses without curvature
        return nothing
    whole = not run.sampled or run.subsets.is_full(here.idx)
    held = held_at(space, state, equations, g) if run.unit_free else None
    if held is not None:
        state = with_met(state, held)
        if whole:
            return Proposal(state, None)
    path = Path(turn._replace(state=state), jacobian, equations, g)
    trial = path.trial(state.rules.gauss_newton.start(equations.scale, equations.least_damping))
    if run.unit_free and whole and trial.d is None:
        held = held_at_the_end(evaluator, state, equations, g)
        if held is not None:
            return Proposal(with_met(state, held), None)
    return Proposal(state, trial)


def with_met(state: KSDState, held: Held) -> KSDState:
    """The state, with the information that this test holds."""
    gauss_newton = changed(state.rules.gauss_newton, met=Met(state.here.x, held))
    return state.with_rules(gauss_newton=gauss_newton)


class Path:
    """The steps from one point, for one damping after the other."""

    def __init__(
        self,
        turn: Turn,
        # At the point.
        jacobian: Jacobian,
        equations: GaussNewton,
        g: Array,  # the gradient, of the variables that may move
    ) -> None:
        self._run, self._evaluator, self._state, self._costs = turn
        self._jacobian, self._equations, self._g = jacobian, equations, g
        self._noise = turn.evaluator.noise * abs(turn.state.here.value)
        sampled = turn.state.curvature_is_sampled and jacobian.at is not None
        self._beyond_sample = beyond_sample(turn) if sampled else None

    def trial(self, damping: float) -> Trial:
        """The step with the first damping that lowers the loss, if any does.

        But none longer than |x|: that may lower the loss of a deep net, but most of its units are
        saturated afterwards, and it hardly learns any more.
        """
        here, evaluator = self._state.here, self._evaluator
        growth, tried = 2.0, 0
        while True:
            found = self._found(damping)
            if found is not None:
                tried += found.evaluations
                if found.value < here.value and (evaluator.spent() or not self._is_far(found.x)):
                    gained, predicted = here.value - found.value, found.predicted
                    gain = gained / predicted if predicted > 0 else 1.0  # it may underflow
                    return self._trial(found, tried, lowered(damping, gain))
                if not found.predicted > self._noise or evaluator.spent():
                    return self._trial(found, tried, damping)
            damping, growth = damping * growth, 2 * growth

    def _is_far(self, x: Array) -> bool:
        """Whether a step to x is longer than the point that it starts from; never from zero."""
        start, norm = self._state.here.x, self._run.space.norm
        return 0 < norm(start) < norm(x - start)

    def _trial(self, found: Found, tried: int, damping: float) -> Trial:
        """The step to the point, if it is lower, or equal up to rounding."""
        here, matrix = self._state.here, self._equations.matrix
        d = found.x - here.x
        lower, as_low = found.value < here.value, found.value <= here.value + self._noise
        taken = lower or (as_low and self._run.space.max_abs(d) > 0)
        return made(
            Trial,
            kind=NAME,
            x=found.x if taken else here.x,
            d=d if taken else None,
            value=found.value if taken else here.value,
            gradient=None if taken else here.gradient,
            predicted=here.value - found.value if taken else 0.0,
            model_reduction=found.predicted,
            inner_iterations=tried,
            steepest=found.curvature,
            damping=NextDamping(damping, matrix.rank, matrix.whole_below),
        )

    def _found(self, damping: float) -> Found | None:
        """The best point for a damping; None if rounding makes the equations singular."""
        solve = self._equations.solver(damping)
        if solve is None:
            return None
        d = solve(self._equations.residuals)
        damped, length, slope = self._run.space.floats(
            self._equations.square(d), d @ d, self._g @ d
        )
        predicted = (damping * damped - slope) / 2
        curvature = -(slope + damping * damped) / length if length else 0.0
        best, value, evaluations = self._corrected(d, solve)
        if self._beyond_sample is not None and value < math.inf:
            value, evaluations = self._evaluator.value(best, self._state.here.idx), evaluations + 1
        return Found(best, value, predicted, curvature, evaluations)

    def _corrected(self, d: Array, solve: Callable[[Array], Array]) -> tuple[Array, float, int]:
        """The best of x + d and the corrected points, its value, and the number of trials."""
        x, box, lowest = self._state.here.x, self._run.box, self._state.lowest
        best, best_value, evaluations = x, math.inf, 0
        assert self._costs is not None
        costs = self._costs.with_rank(self._equations.matrix.rank)
        start, at = self._state.here.value, self._jacobian.at
        enough = MarginalGain(self._left(), costs)
        while True:
            there = x + d if box is None else box.project(x + d)
            if at is None:
                value, residuals = self._evaluator.value(there, self._state.here.idx), None
            else:
                value, residuals = at(there)
            if self._beyond_sample is not None:
                value += self._beyond_sample(there)
            evaluations += 1
            if not value < best_value:
                return best, best_value, evaluations
            best, best_value = there, value
            ended = value <= lowest or enough(start - value, evaluations) or self._evaluator.spent()
            if residuals is None or ended:
                return best, best_value, evaluations
            d = solve(self._run.space.in_double(residuals) - self._equations.linear(there - x))

    def _left(self) -> float:
        """The most that can be gained: all residuals, and the penalty."""
        x, r = self._state.here.x, self._equations.residuals
        squares, penalty = self._run.space.floats(r @ r, x @ (self._jacobian.penalty * x))
        return (squares + penalty) / 2


def beyond_sample(turn: Turn) -> Callable[[Array], float]:
    """By how much the loss on all samples is above that on B, to first order around x."""
    here = turn.state.here
    value, g = turn.evaluator.value_and_gradient(here.x, turn.state.sets.B)
    offset, slope = here.value - value, here.gradient - g
    return lambda x: offset + float(slope @ (x - here.x))


# Tests of convergence where a step begins, free of units as those of a fit (`_run/fit_tests.py`).
# They cost next to nothing beside the step, until one of them seems to hold. Then the model's whole
# step is made, without damping, to see whether it predicts any more.


class Whole(NamedTuple):
    """What the model's whole step gains, and its length."""

    predicted: float
    length: float


def held_at(space: Space, state: KSDState, equations: GaussNewton, g: Array) -> Held | None:
    """The test that holds at the point of these equations."""
    here, gained = state.here, state.last_decrease
    norm, largest = math.sqrt(2 * max(here.value, 0.0)), equations.largest_term(here.x)
    if not norm:
        return None  # the gradient is zero, too
    if TESTS.is_solved(norm, largest):
        solved = TESTS.of_equations(equations.left(here.x), gained, here.value)
        if solved is not None:
            return solved
    held = TESTS.of_point(equations.cosine(g, norm))
    little, moved = 0 <= gained <= TESTS.ftol * here.value, state.record.step_norm
    if held is None and not little and not 0 < moved <= TESTS.xtol * space.norm(here.x):
        return None
    whole = whole_step(equations, g)
    if whole is None:
        return None
    if held is not None and TESTS.confirmed(whole.predicted, here.value):
        return held
    return TESTS.of_step(
        gained, whole.predicted, here.value, whole.length, equations.length(here.x)
    )


def held_at_the_end(
    evaluator: Evaluator, state: KSDState, equations: GaussNewton, g: Array
) -> Held | None:
    """Where no step lowers the value, whether none was to be expected.

    In float32, where the run can turn to float64, it does that first.
    """
    if evaluator.space.eps > EPS and evaluator.traits.has_finer_arithmetic:
        return None
    value, whole = state.here.value, whole_step(equations, g)
    if whole is None:
        return None
    rounding = EPS * math.sqrt(2 * abs(value)) * equations.largest_term(state.here.x)
    hidden = max(evaluator.noise * abs(value), rounding)
    return TESTS.of_end(whole.predicted, value, hidden)


def whole_step(equations: GaussNewton, g: Array) -> Whole | None:
    """As far as rounding lets one see."""
    damping = EPS * equations.scale
    solve = equations.solver(damping)
    if solve is None:
        return None
    d = solve(equations.residuals)
    slope, length = -float(g @ d), equations.length(d)
    return Whole(max((slope + damping * length**2) / 2, 0.0), length)
