"""Whether the error of differences hides the slope along a step of the model.

A gradient made of differences has an error in every entry. Across a narrow valley that is nothing
beside the gradient; along the valley it may be all of the slope. Then a line search cuts its step
again and again, and what it finds gains next to nothing.

The values that such a search has computed tell: the parabola through two of its trials and the
start has the slope of the function there. Where this is less than half of what the gradient says
(as a step that does less than half of what was predicted shows a set that is too small),
and the error of differences may be the reason, the gradient is of no use for the step.
"""

from __future__ import annotations

import math
from itertools import pairwise

from ksdmin._ksd.rules.set_sizes import MIN_REDUCTION
from ksdmin._ksd.state import KSDRun, KSDState
from ksdmin._problem.arrays import Array
from ksdmin._run.evaluator import Evaluated, Evaluator


class HiddenSlope:
    """Trials of a line search along -u, and whether they contradict the slope g^T u.

    Parameters
    ----------
    value, slope : float
        The value at the start, and g^T u.
    noise, error : float
        The rounding error of values, and how much the slope may be off by the differences.
    """

    def __init__(self, value: float, slope: float, noise: float, error: float) -> None:
        self._value, self._slope, self._noise, self._error = value, slope, noise, error
        self._trials: list[tuple[float, float]] = []
        self.found = False

    def note(self, t: float, value: float) -> None:
        """A trial at x - t u."""
        if math.isfinite(value):
            self._trials = sorted([*self._trials, (t, value)])
            self.found = self.found or self._contradicted()

    def _contradicted(self) -> bool:
        """By the two shortest trials that rounding does not spoil."""
        value, slope = self._value, self._slope
        for near, far in pairwise(self._trials):
            apart = far[0] - near[0]
            if self._noise * far[0] > MIN_REDUCTION / 2 * slope * near[0] * apart:
                continue
            secants = [(trial[1] - value) / trial[0] for trial in (near, far)]
            off = slope + (far[0] * secants[0] - near[0] * secants[1]) / apart
            return MIN_REDUCTION * slope < off <= self._error
        return False


def gradient_error(run: KSDRun, evaluator: Evaluator, there: Evaluated, steepest: float) -> float:
    """The error of a gradient made of differences: the value's rounding, the curvature's share."""
    scale = max(1.0, run.space.max_abs(there.x))
    return evaluator.gradient_error * (abs(there.value) + scale * steepest / 2)


def watched_slope(
    run: KSDRun, evaluator: Evaluator, state: KSDState, u: Array, slope: float
) -> HiddenSlope | None:
    """The check for a step along -u by differences; None where there are no better ones.

    (With 3-point differences the search goes on: a step with products costs more than its cuts.)
    """
    if not (evaluator.traits.has_finer_arithmetic and state.rules.finer_arithmetic.allowed):
        return None
    here, space = state.here, run.space
    error = gradient_error(run, evaluator, here, state.model.steepest(space))
    noise = evaluator.noise * abs(here.value)
    # x itself is rounded, too
    noise += space.eps * max(1.0, space.max_abs(here.x)) * space.norm(here.gradient)
    return HiddenSlope(here.value, slope, noise, error * float(space.xp.sum(space.xp.abs(u))))
