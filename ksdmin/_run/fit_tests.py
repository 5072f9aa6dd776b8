"""Tests of convergence for a sum of squares, which do not depend on units.

MINPACK's, with two differences: they look at steps that were taken, and at what the model predicts
for its whole step, not for one that a trust region keeps short. So a run that crawls is not taken
for one that has arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

from ksdmin._options import MethodOptions, NotGiven
from ksdmin._problem.arrays import EPS
from ksdmin._result import Status
from ksdmin._run.levenberg_marquardt import POOR

# Where the user gives none. With these, all unknowns of NIST's fits have six digits.
GTOL, FTOL, XTOL = 1e-10, 1e-13, 1e-10
# A value is zero but for rounding below this share of the first one, or of 1 where that is less:
# from a start far off, where the first is huge, a fit may have as much before it.
ZERO = EPS**2


@dataclass(frozen=True)
class Held:
    """A test that holds."""

    status: int  # which one
    text: str  # a sentence with its numbers


@dataclass(frozen=True)
class FitTests:
    """The tolerances."""

    gtol: float  # of the largest cosine between the residuals and a column of the Jacobian
    # Of the reduction of the value, relative to it: of the last step's, and of the predicted one.
    ftol: float
    xtol: float  # of the last step, relative to the variables, in the scale of the columns' lengths
    first: float = 0.0  # the value at the first point; 0 where nothing is relative to it

    @staticmethod
    def are_free(options: MethodOptions) -> bool:
        """Whether no tolerance is given: those of other problems would depend on units."""
        given = options.gtol, options.ftol, options.xtol
        return all(isinstance(tol, NotGiven) for tol in given)

    @classmethod
    def of(cls, options: MethodOptions) -> FitTests:
        """The user's, or the defaults."""
        given = (options.gtol, GTOL), (options.ftol, FTOL), (options.xtol, XTOL)
        gtol, ftol, xtol = (own if isinstance(tol, NotGiven) else tol for tol, own in given)
        return cls(float(gtol), float(ftol), float(xtol))

    def of_point(self, cosine: float) -> Held | None:
        """Whether the residuals are orthogonal to every column."""
        if not cosine <= self.gtol:
            return None
        about = "The largest cosine between the residuals and a column of the Jacobian is"
        return Held(Status.CONVERGED, f"{about} {cosine:.2g} <= gtol {self.gtol:.2g}.")

    @staticmethod
    def is_solved(left: float, terms: float) -> bool:
        """Whether equations hold to half of the digits: their normal equations resolve no more."""
        return bool(left <= EPS**0.5 * terms)

    def of_equations(self, left: float, gained: float, value: float) -> Held | None:
        """Whether residuals that can all be zero are: a run that still gains goes on.

        `left` is the share of them in the terms that they are made of, in the mean; `gained` is by
        how much the last step has lowered the value.
        """
        if not self.is_solved(left, 1.0) or not 0 <= gained < POOR * (value + gained):
            return None
        about = f"The residuals are {left:.2g} of their terms <= {EPS**0.5:.2g}"
        return Held(
            Status.XTOL, f"{about}, and the last step lowered the value by less than a quarter."
        )

    def confirmed(self, predicted: float, value: float) -> bool:
        """Whether a model agrees with a test that holds: its whole step is to gain no more.

        Where columns nearly depend on each other, each may be orthogonal to the residuals, and a
        combination of them not.
        """
        return predicted <= self.share * abs(value)

    @property
    def share(self) -> float:
        """Of the value that a step is to gain, at most, where a test holds."""
        return max(self.gtol, self.ftol)

    def of_operator(self, norm: float, first_norm: float) -> Held | None:
        """The test of the gradient where columns are not known: relative to that at x0."""
        if not norm <= self.gtol * first_norm:
            return None
        about = f"max |gradient| {norm:.2g} <= gtol {self.gtol:.2g} * {first_norm:.2g} at x0"
        return Held(Status.CONVERGED, f"{about}, as an operator has no columns to compare with.")

    def of_step(
        self, actual: float, predicted: float, value: float, length: float, size: float
    ) -> Held | None:
        """The tests of a step that was taken: what it gained and was to gain, and its length.

        `predicted` is for the model's whole step, and so is `length`, which is infinite where a
        shorter one was taken; `size` is that of the variables.
        """
        limit = self.ftol * abs(value)
        if self.ftol and 0 <= actual <= limit and predicted <= limit:
            about = f"The last step lowered the value by a share of {_share(actual, value)}"
            return Held(Status.FTOL, f"{about}, and predicted no more: ftol {self.ftol:.2g}.")
        if length <= self.xtol * size:
            about = "The last step changed the variables by a share of"
            share = _share(length, size)
            return Held(Status.XTOL, f"{about} {share} <= xtol {self.xtol:.2g}.")
        return None

    def of_value(self, value: float) -> Held | None:
        """Whether nothing is left of the value: the residuals can all be zero."""
        if not self.ftol or not value <= ZERO * min(self.first, 1.0):
            return None
        about = f"The value is {_share(value, self.first)} times its value at x0"
        return Held(Status.FTOL, f"{about}, which is zero up to rounding: ftol {self.ftol:.2g}.")

    def of_end(self, predicted: float, value: float, hidden: float) -> Held | None:
        """Where no step lowers the value, whether none was to be expected.

        The model predicts less for its whole step than `ftol` asks for, or than is `hidden` by
        rounding, or by the error of differences. (Without `ftol` that is not a success.)
        """
        if not self.ftol:
            return None
        about = f"The next step would lower the value by a share of {_share(predicted, value)}"
        if predicted <= self.ftol * abs(value):
            return Held(Status.FTOL, f"{about} <= ftol {self.ftol:.2g}.")
        if predicted <= hidden:
            return Held(Status.FTOL, f"{about}: less than rounding or differences show.")
        return None


def _share(part: float, whole: float) -> str:
    return f"{part / abs(whole):.2g}" if whole else "0"
