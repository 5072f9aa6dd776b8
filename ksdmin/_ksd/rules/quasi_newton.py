"""Quasi newton: when a step may use the quasi-Newton model alone, without products.

It may after a step with products that gained something, unless the function is quadratic. More
such steps follow as long as the gradient falls, or the next one is expected to lower the function
faster, for its passes, than the last step with products did. On samples products are cheap, and
only the second condition counts. Without such steps 74 classic problems take 25% (+- 4%) more work
(examples/benchmarks/ablation.py).

The speed of a step is the logarithm of the factor by which it lowers the remaining gain: the
difference between the value and the minimum. The model estimates the remaining gain (`Forecast`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ksdmin._ksd.outcome import Outcome
from ksdmin._ksd.rules.contest import TRIAL_SHARE
from ksdmin._ksd.rules.space import model_error
from ksdmin._problem.values import changed, made
from ksdmin._result import Record

QUADRATIC = 1e-3  # deviation, as a share of the predicted reduction, below which f is quadratic


@dataclass(frozen=True)
class Forecast:
    """What the model predicts for its step from a point, and the gain that remains there."""

    value: float  # the value at the point
    slope: float  # g^T P^-1 g: a step of the model should gain half of it
    # The gain that remains, in units of the slope. It is 1 or more, because the model overestimates
    # the curvature in directions that it has not learnt. It is corrected by what has been gained
    # since the last forecast.
    slopes_left: float = 1.0

    def followed_by(self, value: float, slope: float) -> Forecast:
        """The forecast at the next point."""
        left_then = self.value - value + self.slopes_left * slope
        if not math.isfinite(left_then):  # the slope was almost zero
            return Forecast(value, slope)
        slopes_left = max(1.0, left_then / self.slope)
        return made(Forecast, value=value, slope=slope, slopes_left=slopes_left)

    @property
    def left(self) -> float:
        """The gain that remains."""
        return self.slopes_left * self.slope

    @property
    def rate(self) -> float:
        """The speed of a step of the model, which takes two passes: a value and a gradient."""
        return -math.log1p(-0.5 / self.slopes_left) / 2


@dataclass(frozen=True)
class QuasiNewtonChoice:
    """Whether the next step may use the model alone, and how fast such a step has to be."""

    end: Record  # where the last step with products ended
    start: Record | None = None  # where it started; None: no such step yet, or on other samples
    forecast: Forecast | None = None  # the last one
    may_follow: bool = False  # whether the next step may use the model alone
    # Whether the gradient has fallen in the last step, and that was one of the model.
    falls: bool = False
    allowed: bool = True  # whether any may

    def foreseen(self, value: float, slope: float) -> Forecast:
        """The forecast at a point."""
        known = self.forecast
        return Forecast(value, slope) if known is None else known.followed_by(value, slope)

    def pays(self, here: Record, forecast: Forecast) -> bool:
        """Whether to prefer a step of the model, whose forecast is `forecast`."""
        if self.falls or self.start is None or here.passes <= self.end.passes:
            return True
        return forecast.rate >= self._rate_of_products(here, forecast.left)

    def pays_on_samples(self, here: Record, forecast: Forecast) -> bool:
        """The same where the products are of a sample, and the gradient is of everything.

        There steps of the model have to be faster from the first one on. A step with products costs
        little there, and what the last one gained says ever less of the next one: that is tried
        again for a small share of what the steps of the model have cost since.
        """
        if self.start is None or self.forecast is None:
            return False
        trial, turn = self.end.passes - self.start.passes, here.passes - self.end.passes
        if trial <= TRIAL_SHARE * turn:
            return False
        return forecast.rate >= self._rate_of_products(here, forecast.left)

    def _rate_of_products(self, here: Record, left: float) -> float:
        """The speed of the last step with products, with the remaining gain estimated at `here`."""
        if self.start is None:
            return 0.0
        gone = left - here.value
        before, after = self.start.value + gone, self.end.value + gone
        if not before > after > 0:
            return 0.0
        return math.log(before / after) / max(self.end.passes - self.start.passes, 1.0)

    def after(
        self,
        outcome: Outcome,
        # The rows of the history before and after the step.
        start: Record,
        end: Record,
        forecast: Forecast | None,  # that of the model at the start; None if it was not asked
        same: bool,  # whether the step was taken, and its two values are of the same samples
        paired: bool | None = None,
    ) -> QuasiNewtonChoice:
        """The rule after a step.

        On samples, `paired` says that the gradients have taught the model. The first step on
        everything may rest on that, after one with products that failed, too.
        """
        new_curvature, gained = outcome.new_curvature, outcome.actual > outcome.noise
        if paired is not None:
            may_follow = self.allowed and paired and (new_curvature or gained)
        else:
            may_follow = self.allowed and same and gained
            if may_follow and new_curvature:
                error = model_error(outcome.actual, outcome.trial.model_reduction)
                may_follow = error > QUADRATIC
        forecast = self.forecast if forecast is None else forecast
        if not new_curvature:
            falls = same and end.gradient_norm <= start.gradient_norm
            return changed(self, forecast=forecast, may_follow=may_follow, falls=falls)
        known = start if same else None
        return QuasiNewtonChoice(end, known, forecast, may_follow, allowed=self.allowed)

    def withdrawn(self) -> QuasiNewtonChoice:
        """The next step needs products: what the rule has seen belongs to another function."""
        return QuasiNewtonChoice(self.end, allowed=self.allowed)
