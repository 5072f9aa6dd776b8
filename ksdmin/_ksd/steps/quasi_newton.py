"""A step of the quasi-Newton model alone, without products.

It goes along -u, u = P^-1 g, as far as a line search says. Most steps on cheap functions are of
this kind, so this file does little for each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from ksdmin._ksd.line_search import contradicted, line_search
from ksdmin._ksd.outcome import Trial
from ksdmin._ksd.recorded import Measure, StepProducts
from ksdmin._ksd.rules.set_sizes import MIN_REDUCTION
from ksdmin._ksd.state import KSDRun, KSDState
from ksdmin._ksd.steps.kind import Offer, Proposal, Turn, first_preconditioner, preconditioner
from ksdmin._problem.arrays import Array
from ksdmin._problem.box import Box
from ksdmin._problem.values import made
from ksdmin._run.evaluator import Evaluated, Evaluator

NAME = "quasi-newton"


def offer(turn: Turn) -> Offer | None:
    """A step from what the run has learned of the curvature, if the model leads down from here."""
    run, _, state, _ = turn
    if not state.model.capacity or (run.sampled and not is_of_A(run, state)):
        return None
    u, slope = solved(run, state)
    if not slope > 0:
        return None
    forecast = state.rules.quasi_newton.foreseen(state.record.value, slope)
    return Offer(partial(model_step, turn, u, slope), forecast)


def is_of_A(run: KSDRun, state: KSDState) -> bool:
    """Whether the model is of the function that the step lowers: on the gradient's set."""
    if not state.curvature_is_sampled or state.model.base is not None:
        return not state.C_is_other or state.rules.newton.samples is not None
    return len(state.model) > 0 and run.subsets.is_full(state.here.idx)


def solved(run: KSDRun, state: KSDState) -> tuple[Array, float]:
    """P^-1 g, and the slope along it."""
    here, known, g = state.here, state.model.solved, state.here.gradient
    if known is not None and known.g is g and known.D is here.diagonal:
        return known.u, known.slope
    if run.box is None:
        u = state.model.inverse(run.space, first_preconditioner(run, state))(g)
    else:
        g = run.movable(here)(g)
        u = preconditioner(run, state).solve(g)
    return u, float(run.space.inner(g, u))


def model_step(turn: Turn, u: Array, slope: float) -> Proposal:
    """The step along -u, where the slope along u is g^T u, positive."""
    run, evaluator, state, _ = turn
    here = state.here
    noise, differenced = evaluator.noise * abs(here.value), evaluator.gradient_error > 0
    measure = how_measured(run, state, u) if run.space.remote else None
    check = watched_slope(run, evaluator, state, u, slope) if differenced else None
    line = Line(evaluator, here, u, run.box, measure, check)
    there, t = line_search(
        line.at,
        line.slope_at,
        here.value,
        -slope,
        noise=noise,
        lowest=state.lowest,
        spent=evaluator.spent if check is None else lambda: evaluator.spent() or check.found,
    )
    if there is not None and not differenced and contradicted(t, here, there, slope / 2, noise):
        there = None
    d = products = None
    found: Evaluated | LinePoint = here
    if there is not None:
        found, products = there, there.products
        d = there.x - here.x if products is None else products.d
    trial = made(
        Trial,
        kind=NAME,
        x=found.x,
        d=d,
        value=found.value,
        gradient=found.gradient,
        predicted=here.value - found.value,
        inner_iterations=int(there is not None),
        steepest=slope / run.space.norm(u) ** 2 if differenced else 0.0,  # u^T P u
        products=products,
        slope_is_hidden=check is not None and check.found,
    )
    return Proposal(state, trial)


def how_measured(run: KSDRun, state: KSDState, u: Array) -> Measure | None:
    """How a device measures the end of the step along -u, if it does so in one launch."""
    here, space = state.here, run.space
    if run.box is not None or run.options.memory_budget is not None or state.factors is not None:
        return None
    return run.recorded.measure(space, state.model, here.x, here.gradient, u, here.diagonal)


@dataclass(slots=True, eq=False)
class Line:
    """phi(t) = f(x - t u), projected onto the bounds."""

    evaluator: Evaluator
    here: Evaluated
    u: Array
    box: Box | None
    measure: Measure | None
    check: HiddenSlope | None

    def at(self, t: float) -> LinePoint:
        """Evaluate at t: the gradient along with the value, or only when the slope is needed."""
        x, idx, stopped = self.here.x - (self.u if t == 1.0 else t * self.u), self.here.idx, None
        if self.box is not None:
            wanted, x = x, self.box.project(x)
            stopped = x != wanted
        if not self.evaluator.traits.separate_gradient:
            return LinePoint(x, *self.evaluator.value_and_gradient(x, idx), stopped)
        value = self.evaluator.value(x, idx)
        if self.check is not None and (stopped is None or not stopped.any()):
            self.check.note(t, value)
        return LinePoint(x, value, None, stopped)

    def slope_at(self, point: LinePoint) -> float:
        """The slope of phi, without the variables that a bound has stopped."""
        evaluator, idx, box = self.evaluator, self.here.idx, self.box
        if point.gradient is None:
            if evaluator.traits.has_projected_gradient and box is None:  # cheaper than a gradient
                size = evaluator.space.norm(self.u)
                row = (self.u / size)[None, :]
                return -float(evaluator.value_and_slopes(point.x, idx, row)[1][0]) * size
            point.gradient = evaluator.value_and_gradient(point.x, idx)[1]
        if self.measure is not None:
            point.products = self.measure(point.x, point.gradient)
            return -point.products.slope
        moving = point.gradient
        if box is not None and point.stopped is not None:
            moving = box.without(moving, point.stopped)
        return -float(evaluator.space.inner(moving, self.u))


@dataclass(slots=True, eq=False)
class LinePoint:
    """Where phi has been evaluated."""

    x: Array
    value: float
    gradient: Array | None  # where it was computed
    stopped: Array | None  # which variables a bound has stopped on the way
    products: StepProducts | None = None  # of the step to it, where all are computed at once


@dataclass(eq=False)
class HiddenSlope:
    """Whether the error of differences hides the slope g^T u along a step -u.

    A gradient made of differences has an error in every entry. Across a narrow valley that is
    nothing beside the gradient; along the valley it may be all of the slope. Then a line search
    cuts its step again and again, and what it finds gains next to nothing.

    The values that such a search has computed tell: the parabola through two of its trials and the
    start has the slope of the function there. Where this is less than half of what the gradient
    says (as a step that does less than half of what was predicted shows a set that is too small),
    and the error of differences may be the reason, the gradient is of no use for the step.
    """

    # At the start: the value, and g^T u.
    value: float
    slope: float
    noise: float  # the rounding error of values
    error: float  # how much the slope may be off by the differences
    found: bool = False
    trials: list[tuple[float, float]] = field(default_factory=list)

    def note(self, t: float, value: float) -> None:
        """A trial at x - t u; beside huge slopes t may be rounded to 0."""
        if t > 0 and math.isfinite(value):
            self.trials = sorted([*self.trials, (t, value)])
            self.found = self.found or self._contradicted()

    def _contradicted(self) -> bool:
        """Whether the two shortest trials that rounding does not spoil contradict the slope."""
        value, slope = self.value, self.slope
        for near, far in pairwise(self.trials):
            apart = far[0] - near[0]
            if self.noise * far[0] > MIN_REDUCTION / 2 * slope * near[0] * apart:
                continue
            secants = [(trial[1] - value) / trial[0] for trial in (near, far)]
            off = slope + (far[0] * secants[0] - near[0] * secants[1]) / apart
            return MIN_REDUCTION * slope < off <= self.error
        return False


def gradient_error(run: KSDRun, evaluator: Evaluator, there: Evaluated, steepest: float) -> float:
    """The error of a gradient by differences: from rounding of the values, and from curvature."""
    scale = max(1.0, run.space.max_abs(there.x))
    return evaluator.gradient_error * (abs(there.value) + scale * steepest / 2)


def watched_slope(
    run: KSDRun, evaluator: Evaluator, state: KSDState, u: Array, slope: float
) -> HiddenSlope | None:
    """The check for a step along -u by differences; None if there are no better differences.

    (With 3-point differences the search goes on: a step with products costs more than its cuts.)
    """
    if not (evaluator.traits.has_finer_arithmetic and state.rules.finer_arithmetic.allowed):
        return None
    here, space = state.here, run.space
    error = gradient_error(run, evaluator, here, state.model.steepest(space))
    noise = evaluator.noise * abs(here.value)
    # x is rounded, too
    noise += space.eps * max(1.0, space.max_abs(here.x)) * space.norm(here.gradient)
    return HiddenSlope(here.value, slope, noise, error * float(space.xp.sum(space.xp.abs(u))))
