"""Quasi newton: when a step may rest on the quasi-Newton model alone, without products.

It may after a step with products that gained something, unless the function is quadratic; then
as long as the gradient falls, or the next step of the model is expected to come down faster, for
its passes, than the last step with products. On samples, where products are cheap, only the latter
counts. Without such steps 74 classic problems take 25%
(+- 4%) more work (examples/benchmarks/ablation.py).

How fast a step comes down is measured by what is left to gain: by which factor, as a logarithm,
the step lowers that. The model itself tells how much is left (`Forecast`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ksdmin._ksd.outcome import Outcome
from ksdmin._ksd.rules.contest import TRIAL_SHARE
from ksdmin._ksd.rules.space import model_error
from ksdmin._problem.values import changed, made
from ksdmin._result import Record

QUADRATIC = 1e-3  # of the predicted reduction: with less deviation the function is quadratic


@dataclass(frozen=True)
class Forecast:
    """What the model predicts for its step from a point, and how much is left to gain there."""

    value: float  # the value at the point
    slope: float  # g^T P^-1 g: a step of the model should gain half of it
    # How many times the slope is left to gain. That is once or more: along what the model has not
    # learnt, it takes the curvature for too large. What has been gained since the last forecast
    # tells how much more.
    slopes_left: float = 1.0

    def followed_by(self, value: float, slope: float) -> Forecast:
        """The forecast at the next point."""
        left_then = self.value - value + self.slopes_left * slope
        if not math.isfinite(left_then):  # a slope that was next to nothing
            return Forecast(value, slope)
        slopes_left = max(1.0, left_then / self.slope)
        return made(Forecast, value=value, slope=slope, slopes_left=slopes_left)

    @property
    def left(self) -> float:
        """How much is left to gain."""
        return self.slopes_left * self.slope

    @property
    def rate(self) -> float:
        """How fast a step of the model comes down, for two passes: a value and a gradient."""
        return -math.log1p(-0.5 / self.slopes_left) / 2


@dataclass(frozen=True)
class StepTaken:
    """What the rule looks at after a step."""

    outcome: Outcome  # what the step did
    # The lines of the history before and after it.
    start: Record
    end: Record
    forecast: Forecast | None  # that of the model at the start; None where it was not asked
    same_function: bool  # whether the step was taken, and its two values are of the same samples

    @property
    def gained(self) -> bool:
        """Whether the value has fallen, as far as rounding shows."""
        return self.outcome.actual > self.outcome.noise


@dataclass(frozen=True)
class QuasiNewtonChoice:
    """Whether the next step may rest on the model, and what such a step has to beat."""

    end: Record  # where the last step with products ended
    start: Record | None = None  # where it started; None: there was none, or on other samples
    forecast: Forecast | None = None  # the last one
    may_follow: bool = False  # whether the next step may rest on the model
    # Whether the gradient has fallen in the last step, and that was one of the model.
    falls: bool = False
    allowed: bool = True  # whether any may

    @classmethod
    def off(cls, record: Record) -> QuasiNewtonChoice:
        """Every step has products."""
        return cls(record, allowed=False)

    def foreseen(self, value: float, slope: float) -> Forecast:
        """The forecast at a point."""
        known = self.forecast
        return Forecast(value, slope) if known is None else known.followed_by(value, slope)

    def pays(self, here: Record, forecast: Forecast) -> bool:
        """Whether a step of the model is to be preferred; the `forecast` is for that."""
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
        """How fast the last step with products came down, as it looks from `here`."""
        if self.start is None:
            return 0.0
        gone = left - here.value
        fall = logarithm(self.start.value + gone, self.end.value + gone)
        return fall / max(self.end.passes - self.start.passes, 1.0)

    def after(self, step: StepTaken) -> QuasiNewtonChoice:
        """The rule after a step where every set is the whole."""
        outcome = step.outcome
        may_follow = self.allowed and step.same_function and step.gained
        if may_follow and outcome.new_curvature:
            may_follow = model_error(outcome.actual, outcome.model_reduction) > QUADRATIC
        return self._informed(step, may_follow)

    def on_samples(self, step: StepTaken, *, paired: bool) -> QuasiNewtonChoice:
        """The rule after a step on samples; `paired` says that the gradients have taught the model.

        The first step on everything may rest on that, after one with products that failed, too.
        """
        gained = step.outcome.new_curvature or step.gained
        return self._informed(step, self.allowed and paired and gained)

    def _informed(self, step: StepTaken, may_follow: bool) -> QuasiNewtonChoice:
        start, end, same = step.start, step.end, step.same_function
        forecast = self.forecast if step.forecast is None else step.forecast
        if not step.outcome.new_curvature:
            falls = same and end.gradient_norm <= start.gradient_norm
            return changed(self, forecast=forecast, may_follow=may_follow, falls=falls)
        return made(
            QuasiNewtonChoice,
            end=end,
            start=start if same else None,
            forecast=forecast,
            may_follow=may_follow,
            falls=False,
            allowed=self.allowed,
        )

    def withdrawn(self) -> QuasiNewtonChoice:
        """The next step needs products; what has been seen was of another function."""
        return QuasiNewtonChoice(self.end, allowed=self.allowed)


def logarithm(before: float, after: float) -> float:
    """By which factor something has fallen, as a logarithm; 0 where that makes no sense."""
    return math.log(before / after) if before > after > 0 else 0.0
