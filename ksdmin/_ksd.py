"""Algorithm 3, Krylov Subspace Descent: the state of a run, the step, the loop.

Letters as in the paper: sets A, B, C; gradient g, preconditioner D, basis V, curvature H_bar
within it, search directions d_prev.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ksdmin._arrays import Array, Space
from ksdmin._bfgs import bfgs
from ksdmin._evaluator import Evaluated, Evaluator
from ksdmin._krylov import Basis, Growth, krylov_basis
from ksdmin._options import Options
from ksdmin._policies import Outcome
from ksdmin._precond import floored_diagonal
from ksdmin._result import Record, Status
from ksdmin._subsets import WHOLE, Draw, Sets, Sizes
from ksdmin._subspace import SubspaceObjective, SubspacePoint, Whitening

FORCING = 0.5  # the largest relative residual of a Newton step
LESS = 0.9  # of the smallest gradient norm so far: that is progress, whatever the value does
PATIENCE = 3  # iterations that neither lower the value nor the gradient, before giving up
UNBOUNDED = -1e20  # times max(1, |f(x0)|): no sensible minimum lies below


@dataclass(frozen=True)
class State:
    """Where a run stands: a value, from which `step` makes the next one.

    Attributes
    ----------
    here : Evaluated
        The point, with value, gradient and diagonal on a set A.
    sets, sizes : Sets, Sizes or None
        The sets of the coming iteration, and the sizes they were drawn with.
    d_prev : tuple of arrays
        The previous search directions, newest first.
    gradient_norm, least_gradient : float
        The largest magnitude in the gradient here, and its smallest value so far.
    forcing : float
        The relative residual that the next Newton step should have.
    decrease, step_norm : float
        What the last step taken did to the value, and how far it went.
    stalled : int
        Iterations in a row without progress.
    broken : bool
        Whether the curvature gave no finite product at all.
    warned : bool
        Whether the user has been told of a product that is not symmetric.
    record : Record
        The last line of the history.
    """

    here: Evaluated
    sets: Sets
    sizes: Sizes | None
    d_prev: tuple[Array, ...]
    gradient_norm: float
    least_gradient: float
    forcing: float
    decrease: float
    step_norm: float
    stalled: int
    broken: bool
    warned: bool
    record: Record


@dataclass(frozen=True)
class Run:
    """What stays the same during a run."""

    evaluator: Evaluator
    options: Options
    draw: Draw
    seed: tuple[int, ...]
    maxiter: float
    krylov_dim: int
    inner_maxiter: int

    @property
    def space(self) -> Space:
        """Where the vectors live."""
        return self.evaluator.space

    def sample(self, iteration: int, sizes: Sizes | None) -> Sets:
        """The sets of an iteration (Alg. 3, line 3): the seed and the iteration decide."""
        if self.evaluator.subsets.everything(sizes):
            return Sets(WHOLE, WHOLE, WHOLE)
        rng = np.random.default_rng((*self.seed, iteration))
        sets = self.draw(iteration, rng, sizes)
        if sizes is None:  # the user's own objects
            return sets
        return Sets(*(self._indices(idx) for idx in (sets.A, sets.B, sets.C)))

    def _indices(self, idx: Any) -> Any:
        return self.space.indices(idx) if isinstance(idx, np.ndarray) else idx


def start(run: Run, x0: Array) -> State:
    """Where Algorithm 3 begins."""
    options = run.options
    sizes = run.evaluator.subsets.sizes(run.krylov_dim)
    sets = run.sample(0, sizes)  # Alg. 3, line 3
    here = evaluate(run, x0, sets.A)  # lines 4 and 5
    e_1 = (run.space.unit(0),) if options.policies.first_direction else ()  # line 1
    norm = run.space.max_abs(here.gradient)
    return State(
        here=here,
        sets=sets,
        sizes=sizes,
        d_prev=e_1[: int(options.memory)],
        gradient_norm=norm,
        least_gradient=norm,
        forcing=FORCING,
        decrease=np.inf,
        step_norm=np.inf,
        stalled=0,
        broken=False,
        warned=False,
        record=write_record(run, 0, here, norm, sets),
    )


def step(run: Run, state: State) -> State:
    """One iteration of Algorithm 3: its lines 6 to 13, then lines 3 to 5 of the next."""
    here, sets, policies = state.here, state.sets, run.options.policies
    basis = build_basis(run, state)  # Alg. 3, line 6
    if basis.dim == 0:
        return replace(state, broken=True)
    H_hat = policies.spectrum(basis.H_bar, run.options.floor)  # line 7
    whitening = Whitening(H_hat)  # lines 8 and 9
    phi = SubspaceObjective(run.evaluator, here, sets.C, basis, whitening, tilted=policies.tilted)
    found, inner = bfgs(  # lines 10 and 11
        phi.at,
        phi.start,
        maxiter=run.inner_maxiter,
        noise=run.evaluator.noise * abs(phi.start.value),
        enough=policies.paid,
        spent=lambda: run.evaluator.spent() is not None,
    )
    d = run.space.combine(basis.V, found.c)  # line 12
    next_sets = run.sample(state.record.iteration + 1, state.sizes)  # line 3
    there = evaluate(run, found.x, next_sets.A, found, sets.C)  # lines 13, 4 and 5
    trial = Trial(basis, d, phi.start.value - found.value, inner, there)
    return judge(run, state, trial, next_sets)


def build_basis(run: Run, state: State) -> Basis:
    """The subspace of this iteration: Algorithm 2 on the set B."""
    here, options = state.here, run.options
    D = floored_diagonal(run.space, here.diagonal, options.floor)
    product = run.evaluator.curvature(here.x, state.sets.B)

    def enough(growth: Growth) -> bool:
        grown = options.policies.grown(growth, state.forcing)
        return grown or run.evaluator.spent() is not None

    return krylov_basis(run.space, here.gradient, D, product, state.d_prev, run.krylov_dim, enough)


def evaluate(
    run: Run, x: Array, A: Any, found: SubspacePoint | None = None, C: Any = None
) -> Evaluated:
    """What the next iteration starts from: value, gradient and diagonal on A.

    The search has just been at `found`: where A served as C, everything is known already. A
    partial set cannot tell convergence: where its gradient passes the test, the whole set is
    asked instead.
    """
    evaluator = run.evaluator
    g = found.whole_gradient if found is not None and C is A else None
    if found is not None and g is not None and not evaluator.has_diagonal:
        return Evaluated(x, A, found.value, g)
    there, full = evaluator.evaluate(x, A), evaluator.subsets.full
    on_part = full is not None and not evaluator.subsets.is_full(A)
    if on_part and run.space.max_abs(there.gradient) <= run.options.gtol:
        return evaluator.evaluate(x, full)
    return there


@dataclass(frozen=True)
class Trial:
    """A step that a search proposes, and what is known at its end."""

    basis: Basis
    d: Array
    promised: float
    inner_iterations: int
    there: Evaluated


def judge(run: Run, state: State, trial: Trial, sets: Sets) -> State:
    """Take the step or leave it, and make the state of the next iteration."""
    here, there, policies = state.here, trial.there, run.options.policies
    iteration, sizes, taken = state.record.iteration + 1, state.sizes, True
    noise = run.evaluator.noise * max(abs(here.value), abs(there.value))
    outcome = Outcome(trial.promised, here.value - there.value, noise)
    if there.idx is here.idx:  # otherwise the values are means over other samples
        taken = policies.accept(outcome)
        if sizes is not None and run.evaluator.subsets.n is not None:
            sizes = policies.resize(sizes, outcome, run.evaluator.subsets.n)
            if sizes != state.sizes:
                sets = replace(run.sample(iteration, sizes), A=sets.A)
    if taken:
        state = arrive(run, state, trial, outcome)
    else:
        state = replace(state, stalled=state.stalled + 1)
    record = write_record(run, iteration, state.here, state.gradient_norm, sets, trial, taken)
    warned = state.warned or warn_if_asymmetric(run, trial.basis)
    return replace(state, sets=sets, sizes=sizes, warned=warned, record=record)


def arrive(run: Run, state: State, trial: Trial, outcome: Outcome) -> State:
    """The state at the end of a step that is taken."""
    there, space = trial.there, run.space
    norm = space.max_abs(there.gradient)
    step_norm = space.norm(trial.d)
    progress = outcome.achieved > outcome.noise or norm < LESS * state.least_gradient
    ratio = norm / state.gradient_norm if state.gradient_norm else 1.0
    return replace(
        state,
        here=there,
        d_prev=(trial.d, *state.d_prev)[: int(run.options.memory)] if step_norm else state.d_prev,
        gradient_norm=norm,
        least_gradient=min(norm, state.least_gradient),
        forcing=min(FORCING, 0.9 * min(ratio, 1.0) ** 2),
        decrease=outcome.achieved,
        step_norm=step_norm,
        stalled=0 if progress else state.stalled + 1,
    )


def verdict(run: Run, state: State, first_value: float) -> Status | None:
    """Whether the run is over at `state`, and why."""
    here, options, evaluator = state.here, run.options, run.evaluator
    if not np.isfinite(here.value) or not np.isfinite(state.gradient_norm) or state.broken:
        return Status.NOT_FINITE
    if evaluator.subsets.is_full(here.idx):
        if state.gradient_norm <= options.gtol or small_change(run, state):
            return Status.CONVERGED
        if here.value <= UNBOUNDED * max(1.0, abs(first_value)):
            return Status.UNBOUNDED
        deterministic = state.sets.B is here.idx and state.sets.C is here.idx
        if deterministic and state.stalled >= (PATIENCE if state.step_norm else 1):
            return Status.PRECISION_LOSS
    if state.record.iteration >= run.maxiter:
        return Status.MAXITER
    return evaluator.spent()


def small_change(run: Run, state: State) -> bool:
    """The tests of ftol and xtol on the last step that was taken."""
    options, here = run.options, state.here
    scale = max(abs(here.value), abs(here.value + state.decrease), 1.0)
    if 0 <= state.decrease <= options.ftol * scale and options.ftol:
        return True
    return bool(options.xtol) and (
        state.step_norm <= options.xtol * max(1.0, run.space.norm(here.x))
    )


def warn_if_asymmetric(run: Run, basis: Basis) -> bool:
    """Tell the user of a product that is not symmetric; what is used is V^T H V, mirrored."""
    tolerance = max(1e-4, 30 * run.space.eps**0.5)
    if not run.evaluator.exact_products or basis.asymmetry <= tolerance:
        return False
    warnings.warn(
        f"The curvature product is not symmetric: v^T H u and u^T H v differ by "
        f"{basis.asymmetry:.1e} of the largest entry. Check hess or hessp against differences of "
        "the gradient (scipy.optimize.check_grad helps).",
        RuntimeWarning,
        stacklevel=2,
    )
    return True


def write_record(
    run: Run,
    iteration: int,
    here: Evaluated,
    gradient_norm: float,
    sets: Sets,
    trial: Trial | None = None,
    taken: bool = True,
) -> Record:
    """The line of the history for an iteration."""
    counts, size_of = run.evaluator.counts, run.evaluator.subsets.size_of
    return Record(
        iteration=iteration,
        value=here.value,
        gradient_norm=gradient_norm,
        step_norm=run.space.norm(trial.d) if trial and taken else 0.0,
        accepted=taken,
        dim=trial.basis.dim if trial else 0,
        size_A=size_of(here.idx),
        size_B=size_of(sets.B),
        size_C=size_of(sets.C),
        inner_iterations=trial.inner_iterations if trial else 0,
        nfev=counts.nfev,
        njev=counts.njev,
        nhev=counts.nhev,
        passes=counts.passes,
        seconds=run.evaluator.seconds,
    )
