"""A step that is proposed, and what it did: what every rule looks at."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ksdmin._ksd.krylov import Basis
from ksdmin._ksd.recorded import StepProducts
from ksdmin._problem.arrays import Array
from ksdmin._run.evaluator import Evaluated


@dataclass(frozen=True)
class NextDamping:
    """What a Gauss-Newton step leaves to the next one."""

    value: float  # the damping to begin with
    rank: int  # how many columns the last factor of its equations had
    # For such a shift and below, a factor of low rank was no less work than the whole.
    whole_below: float


@dataclass(frozen=True)
class Trial:
    """A step that a search proposes: the direction d, to the point x."""

    kind: str  # the name of its kind
    # The point, and the way to it; None where the search found nothing better.
    x: Array
    d: Array | None
    # On C, as far as the search computed them.
    value: float
    gradient: Array | None
    predicted: float  # the reduction of the objective of the search, without the damping
    # The reduction of the quadratic model; NaN where no product was computed.
    model_reduction: float = math.nan
    inner_iterations: int = 0  # of the search
    dim: int = 1  # the dimension of the subspace that it searched
    steepest: float = 0.0  # the largest curvature in there: an entry of H_bar
    basis: Basis | None = None  # the subspace; None where no product was computed
    # What a Gauss-Newton step leaves to the next one; None after any other step.
    damping: NextDamping | None = None
    # The products of the step, where they were computed all at once.
    products: StepProducts | None = None
    slope_is_hidden: bool = False  # whether the error of differences hides the slope along it

    def products_to(self, there: Evaluated) -> StepProducts | None:
        """`products`, if `there` is the point that the search evaluated."""
        products = self.products
        return products if products is None or there.gradient is self.gradient else None

    @property
    def has_factor(self) -> bool:
        """Whether the whole curvature matrix was factorised for it."""
        return self.basis is not None and self.basis.factor is not None

    @property
    def is_gauss_newton(self) -> bool:
        """Whether it is a Gauss-Newton step."""
        return self.damping is not None

    @property
    def is_of_model(self) -> bool:
        """Whether it rests on the quasi-Newton model alone."""
        return self.basis is None and self.damping is None

    @property
    def has_whole_curvature(self) -> bool:
        """Whether it was made of the whole curvature."""
        return self.damping is not None or (self.basis is not None and self.basis.of_matrix)

    @property
    def newton_reduction(self) -> float:
        """The gain that the whole curvature predicted for its Newton step; NaN for other steps."""
        if self.is_gauss_newton:
            return self.model_reduction
        if self.basis is None or not self.basis.of_matrix:
            return math.nan
        return self.basis.newton_decrease


@dataclass(frozen=True)
class Outcome:
    """The predicted and the actual reduction of one step, and what it has cost.

    Reductions are of the value on a set: positive is down. The new value may be of other samples
    than A, the set that the gradient was of: `slope_correction` is by how much the step goes down
    steeper on those.
    """

    trial: Trial  # the step, with what was predicted of it
    actual: float  # the reduction on the samples of the new value; NaN where it was not computed
    slope_correction: float  # see above; 0 where the samples are the same
    noise: float  # the rounding error of `actual`
    # The rounding error of the value before the step, and the error of a value change that a
    # gradient made of differences predicts.
    value_noise: float
    gradient_noise: float
    # The error of an entry of a gradient made of differences; 0 where gradients are exact.
    gradient_error: float
    compared: bool  # whether values before and after the step are of the same samples
    accepted: bool  # whether the step is taken
    moved: bool  # whether the search left the point
    # Whether the curvature was computed for this step, by products, a matrix or rows: not for a
    # quasi-Newton step.
    new_curvature: bool
    whole_curvature: bool  # whether it was made of the whole curvature: a matrix, or rows
    of_whole_curvature: bool  # whether it was made of that, or of an earlier one
    # Whether no step of the run may have any: Krylov steps are switched off.
    without_products: bool
    last_resort: bool  # whether there is no step of another kind to try where this one fails
    # What the step has cost, where the whole curvature is available (``_ksd/cost_model.py``).
    work: float
    step_norm: float  # the length of the step, 0 where it was not taken
    # The largest magnitude in the gradient after the step (NaN where not taken), and before.
    gradient_norm: float
    previous_gradient_norm: float

    @property
    def predicted_on_new_A(self) -> float:
        """What the search found, with the slope of the samples of the new value."""
        return self.trial.predicted + self.slope_correction

    @property
    def model_reduction_on_new_A(self) -> float:
        """What the quadratic model predicted, with that slope."""
        return self.trial.model_reduction + self.slope_correction
