"""What the steps of a fit leave to the next one."""

from __future__ import annotations

from dataclasses import dataclass

from ksdmin._problem.arrays import Small
from ksdmin._run.fit_tests import FitTests, Held


@dataclass(frozen=True)
class Fit:
    """Where a fit stands; ``steps/levenberg_marquardt.py`` makes its steps.

    Attributes
    ----------
    scale : array
        The diagonal of D, the scale of the variables: zero before the first step, unless it is the
        user's.
    scaled : bool
        Whether it is the user's, and stays.
    radius, shift : float
        Those of the next step; the radius is NaN before the first.
    bend : array
        S: what the Gauss-Newton matrix lacks of the Hessian, as far as steps have shown.
    tests : FitTests
        The tests of convergence.
    bends : bool
        Whether S is part of the model of the next step.
    held : Held or None
        The test of convergence that holds here; None: none does.
    stuck : bool
        Whether no step lowers the value, as far as rounding lets one see.
    reweighting : float
        Of a robust loss with very many unknowns: how much of the weights of iteratively reweighted
        least squares the rows have, 1 at first, and how much of the curvature of the losses.
    """

    scale: Small
    radius: float
    shift: float
    bend: Small
    tests: FitTests
    scaled: bool = False
    bends: bool = False
    held: Held | None = None
    stuck: bool = False
    reweighting: float = 1.0
