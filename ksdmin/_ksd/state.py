"""A run of Krylov Subspace Descent: what stays the same, and where it stands."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from ksdmin._ksd.dimensions import Dimensions
from ksdmin._ksd.precond import diagonal_preconditioner
from ksdmin._ksd.presets import Preset
from ksdmin._ksd.quasi_newton import InverseHessian, QuasiNewton
from ksdmin._ksd.recorded import RecordedSteps, Workspace
from ksdmin._ksd.rules import Rules
from ksdmin._options import Options
from ksdmin._problem.arrays import Array, Small
from ksdmin._problem.counting import CountingProblem
from ksdmin._problem.protocol import Traits
from ksdmin._problem.values import changed
from ksdmin._run.evaluator import Evaluator, KeptFactors
from ksdmin._run.fit_tests import FitTests, Held
from ksdmin._run.run import Run, State


@dataclass(frozen=True)
class KSDRun(Run):
    """What stays the same."""

    options: Options  # the user's, completed by the preset
    preset: Preset  # the paper's choices, or ours
    parts: int  # sets B and C have the share 1 / parts of the samples at first
    dims: Dimensions  # how many vectors are kept
    off: frozenset[str]  # the rules and kinds of step that the preset or the user has switched off
    # What the Krylov spaces share.
    workspace: Workspace = field(default_factory=Workspace, compare=False, repr=False)
    # What the steps of the model share on a CUDA device.
    recorded: RecordedSteps = field(default_factory=RecordedSteps, compare=False, repr=False)

    @property
    def floor(self) -> float:
        """The smallest eigenvalue, as a share of the largest."""
        return self.preset.floor if self.options.floor is None else self.options.floor

    @property
    def inner_maxiter(self) -> int:
        """The largest number of iterations of the inner search."""
        return int(self.options.inner_maxiter or self.dims.whole_dim)

    def traits_of(self, problem: CountingProblem) -> Traits:
        """A problem's traits; no Kronecker factors if the user gave a power of the diagonal."""
        traits = problem.traits
        if not traits.has_factors:
            return traits
        if self.options.diagonal_power is not None:
            return replace(traits, has_factors=False)
        return super().traits_of(problem)

    def as_preconditioner(self, traits: Traits, diagonal: Array) -> Array:
        """D (Algorithm 3, line 5), made once for a diagonal, which may serve many steps."""
        own = self.options.diagonal_power
        power = traits.diagonal_power if own is None else own
        return diagonal_preconditioner(self.space, diagonal, self.floor, power)

    def applies(self, rule: str) -> bool:
        """Whether a rule or a kind of step is switched on."""
        return rule not in self.off


@dataclass(frozen=True)
class Fit:
    """Where a fit stands; ``steps/levenberg_marquardt.py`` makes its steps."""

    # The diagonal of D, the scale of the variables: zero before the first step, unless it is the
    # user's.
    scale: Small
    # Those of the next step; the radius is NaN before the first.
    radius: float
    shift: float
    bend: Small  # S: what the Gauss-Newton matrix lacks of the Hessian, as far as steps have shown
    tests: FitTests  # the tests of convergence
    scaled: bool = False  # whether it is the user's, and stays
    bends: bool = False  # whether S is part of the model of the next step
    held: Held | None = None  # the test of convergence that holds here; None: none does
    stuck: bool = False  # whether no step lowers the value, as far as rounding lets one see
    # Of a robust loss with very many unknowns: how much of the weights of iteratively reweighted
    # least squares the rows have, 1 at first, and how much of the curvature of the losses.
    reweighting: float = 1.0


@dataclass(frozen=True)
class KSDState(State):
    """Where it stands."""

    d_prev: tuple[Array, ...]  # the previous search directions, newest first
    # Kronecker factors for the preconditioner, where the problem has any.
    factors: KeptFactors | None
    model: QuasiNewton  # what has been learned of the curvature
    rules: Rules  # what adapts
    warned: bool  # whether the user has been warned of a product that is not symmetric
    # Where the steps of a fit stand; None where the steps are of other kinds.
    fit: Fit | None = None

    @property
    def stalled(self) -> bool:
        """Whether the last iterations made no progress."""
        return self.rules.stall.stalled if self.fit is None else self.fit.stuck

    def with_tolerances(self, given: Mapping[str, float]) -> Self:
        """The state with these tolerances of a fit instead of its own."""
        if self.fit is None or not given:
            return self
        tests = changed(self.fit.tests, **given)
        return changed(self, fit=changed(self.fit, tests=tests, held=None, stuck=False))

    def with_rules(self, **rules: Any) -> Self:
        """The state with these rules instead of its own."""
        return changed(self, rules=changed(self.rules, **rules))

    def of_another_function(self) -> Self:
        """The state after a change of the function: the model is now a preconditioner only."""
        stall = self.rules.stall.restarted(self.gradient_norm)
        quasi_newton = self.rules.quasi_newton.withdrawn()
        return super().of_another_function().with_rules(stall=stall, quasi_newton=quasi_newton)

    @property
    def tests_itself(self) -> bool:
        """Whether the tests without units count, as in a fit."""
        return self.fit is not None or self.ledger.problem.unit_free

    @property
    def is_fit(self) -> bool:
        """Whether the steps make these tests, because they know the predictions."""
        return self.fit is not None

    @property
    def held(self) -> Held | None:
        """The test of convergence that holds here, as the steps have found."""
        if self.fit is not None:
            return self.fit.held
        met = self.rules.gauss_newton.met
        return met.held if met is not None and met.x is self.here.x else None

    @property
    def damping(self) -> float:
        """The damping of the next search; only steps on samples are damped."""
        value = self.rules.damping.value
        return value if value and self.curvature_is_sampled else 0.0

    @property
    def C_is_other(self) -> bool:
        """Whether C, the set of the search, differs from A, the set of the gradient."""
        return self.sampling.sets.C is not self.here.idx

    @property
    def learns(self) -> bool:
        """Whether there is a model to teach: gradient and products are of the same function."""
        return self.model.capacity > 0 and not self.curvature_is_sampled


def learned_curvature(run: KSDRun, state: KSDState) -> dict[str, InverseHessian]:
    """The field `hess_inv` of the result; None if nothing was learned, or the run is on a device.

    A result should neither hold device memory nor copy all of it to the host unasked.
    """
    learned = run.space.numpy and (len(state.model) or state.model.base is not None)
    return {"hess_inv": InverseHessian(state.model, run.space)} if learned else {}


def reevaluate(run: KSDRun, evaluator: Evaluator, state: KSDState, A: Any) -> KSDState:
    """The state at the same point for another function: of other samples, or with less rounding."""
    here = evaluator.evaluate(state.here.x, A, diagonal=state.here.diagonal is not None)
    norm = run.stationarity(here.x, here.gradient)
    state = changed(state, here=here, gradient_norm=norm, last_decrease=math.nan)
    return state.with_rules(stall=state.rules.stall.restarted(norm))
