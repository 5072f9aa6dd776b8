"""What a step was predicted to do, and what it did: what every rule looks at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NextDamping:
    """What a Gauss-Newton step leaves to the next one."""

    value: float  # the damping to begin with
    rank: int  # how many columns the last factor of its equations had
    # For such a shift and below, a factor of low rank was no less work than the whole.
    whole_below: float


@dataclass(frozen=True)
class Outcome:
    """The predicted and the actual reduction of one step, and how the step was made.

    Reductions are of the value on a set: positive is down. The new value may be of other samples
    than A, the set that the gradient was of: `slope_correction` is by how much the step goes down
    steeper on those.
    """

    actual: float  # the reduction on the samples of the new value; NaN where it was not computed
    predicted_on_C: float  # what the search found on C, with the slope of A and without the damping
    # What the quadratic model of B predicted, with the slope of A; NaN for a step without products.
    model_reduction: float
    slope_correction: float = 0.0  # see above; 0 where the samples are the same
    noise: float = 0.0  # the rounding error of `actual`
    # The rounding error of the value before the step, and the error of a value change that a
    # gradient made of differences predicts.
    value_noise: float = 0.0
    gradient_noise: float = 0.0
    # The error of an entry of a gradient made of differences; 0 where gradients are exact.
    gradient_error: float = 0.0
    compared: bool = True  # whether values before and after the step are of the same samples
    accepted: bool = True  # whether the step is taken
    moved: bool = True  # whether the search left the point
    slope_is_hidden: bool = False  # whether the error of differences hides the slope along the step
    # Whether the curvature was computed for this step, by products, a matrix or rows: not for a
    # quasi-Newton step.
    new_curvature: bool = True
    whole_curvature: bool = False  # whether it was made of the whole curvature: a matrix, or rows
    of_whole_curvature: bool = False  # whether it was made of that, or of an earlier one
    # Whether no step of the run may have any: Krylov steps are switched off.
    without_products: bool = False
    last_resort: bool = True  # whether there is no step of another kind to try where this one fails
    # What the quadratic model of such a space predicted for its Newton step; NaN otherwise.
    newton_reduction: float = float("nan")
    value: float = float("nan")  # the value after the step, if that was taken
    # What the step has cost, where the whole curvature is available (``_ksd/cost_model.py``).
    work: float = float("nan")
    # What a Gauss-Newton step leaves to the next one; None after any other step.
    damping: NextDamping | None = None
    step_norm: float = 0.0  # the length of the step, 0 where it was not taken
    # The largest magnitude in the gradient after the step (NaN where not taken), and before.
    gradient_norm: float = float("nan")
    previous_gradient_norm: float = float("nan")

    @property
    def predicted_on_new_A(self) -> float:
        """What the search found, with the slope of the samples of the new value."""
        return self.predicted_on_C + self.slope_correction

    @property
    def model_reduction_on_new_A(self) -> float:
        """What the quadratic model predicted, with that slope."""
        return self.model_reduction + self.slope_correction
