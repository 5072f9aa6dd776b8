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
from ksdmin._subsets import Draw, Sets, Sizes
from ksdmin._subspace import SubspaceObjective, Whitening

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
    decrease : float
        What the last step did to the value; NaN where that cannot be told.
    stalled : int
        Iterations in a row without progress.
    lowest : float
        A value below which the objective counts as unbounded.
    broken, last : bool
        Whether the curvature gave no finite product at all, and whether the sets have run out.
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
    stalled: int
    lowest: float
    broken: bool
    last: bool
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

    def sample(self, iteration: int, sizes: Sizes | None) -> Sets | None:
        """The sets of an iteration (Alg. 3, line 3), None where the user's have run out.

        For random ones the seed and the iteration decide.
        """
        subsets = self.evaluator.subsets
        if subsets.everything(sizes):
            return Sets(subsets.full, subsets.full, subsets.full)
        rng = np.random.default_rng((*self.seed, iteration))
        sets = self.draw(iteration, rng, sizes)
        if sets is None or sizes is None:  # the user's own objects
            return sets
        return Sets(*(self._indices(idx) for idx in (sets.A, sets.B, sets.C)))

    def last_set(self, A: Any) -> Any:
        """Where to evaluate when there is no next A: on everything, or on `A` again."""
        full = self.evaluator.subsets.full
        return A if full is None else full

    def _indices(self, idx: Any) -> Any:
        return self.space.indices(idx) if isinstance(idx, np.ndarray) else idx


def start(run: Run, x0: Array) -> State:
    """Where Algorithm 3 begins."""
    options = run.options
    sizes = run.evaluator.subsets.sizes(run.krylov_dim)
    sets = run.sample(0, sizes)  # Alg. 3, line 3
    if sets is None:
        raise ValueError("subsets: the iterable holds no sets at all")
    here = confirmed(run, run.evaluator.evaluate(x0, sets.A))  # lines 4 and 5
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
        decrease=np.nan,
        stalled=0,
        lowest=UNBOUNDED * max(1.0, abs(here.value)) if np.isfinite(here.value) else -np.inf,
        broken=False,
        last=False,
        warned=False,
        record=write_record(run, 0, here, norm, sets),
    )


def step(run: Run, state: State) -> State:
    """One iteration of Algorithm 3: its lines 6 to 13, then lines 3 to 5 of the next."""
    basis = build_basis(run, state)  # Alg. 3, line 6
    if not basis.finite and basis.dim == 0:
        return replace(state, broken=True)
    trial = search(run, state, basis)  # lines 7 to 12
    sets = run.sample(state.record.iteration + 1, state.sizes)  # line 3
    if sets is None:
        sets, state = replace(state.sets, A=run.last_set(state.here.idx)), replace(state, last=True)
    there = evaluate(run, trial, state.sets.C, sets.A)  # lines 13, 4 and 5
    return judge(run, state, trial, there, sets)


def build_basis(run: Run, state: State) -> Basis:
    """The subspace of this iteration: Algorithm 2 on the set B."""
    here, options = state.here, run.options
    D = floored_diagonal(run.space, here.diagonal, options.floor)
    product = run.evaluator.curvature(here.x, state.sets.B)

    def enough(growth: Growth) -> bool:
        grown = options.policies.grown(growth, state.forcing)
        return grown or run.evaluator.spent() is not None

    return krylov_basis(run.space, here.gradient, D, product, state.d_prev, run.krylov_dim, enough)


@dataclass(frozen=True)
class Trial:
    """A step that a search proposes: the direction d, to the point x.

    `value` and `gradient` are on C, as far as the search computed them; `promised` is the decrease
    of its objective.
    """

    x: Array
    d: Array | None
    value: float
    gradient: Array | None
    promised: float
    inner_iterations: int
    basis: Basis


def search(run: Run, state: State, basis: Basis) -> Trial:
    """The optimum of the objective on C within the subspace."""
    here, policies = state.here, run.options.policies
    if basis.dim == 0:  # no slope on this A, and no previous direction
        return Trial(here.x, None, here.value, here.gradient, 0.0, 0, basis)
    floor = max(run.options.floor, run.evaluator.product_error)  # below that, H_bar is noise
    H_hat = policies.spectrum(basis.H_bar, floor)  # Alg. 3, line 7
    whitening = Whitening(H_hat)  # lines 8 and 9
    phi = SubspaceObjective(
        run.evaluator, here, state.sets.C, basis, whitening, tilted=policies.tilted
    )
    found, iterations = bfgs(  # lines 10 and 11
        phi.at,
        phi.start,
        maxiter=run.inner_maxiter,
        noise=run.evaluator.noise * abs(phi.start.value),
        slope_noise=slope_noise(run, here, basis) * whitening.gain,
        lowest=state.lowest,
        enough=policies.paid,
        spent=lambda: run.evaluator.spent() is not None,
    )
    moved = found is not phi.start
    d = run.space.combine(basis.V, found.c) if moved else None  # line 12
    promised = phi.start.value - found.value
    return Trial(found.x, d, found.loss, found.whole_gradient, promised, iterations, basis)


def slope_noise(run: Run, here: Evaluated, basis: Basis) -> float:
    """The error of slopes got by differences: the value's rounding, and the curvature's share."""
    if not run.evaluator.slope_error:
        return 0.0
    scale = abs(here.value) + float(np.abs(basis.H_bar).max())
    return run.evaluator.slope_error * max(1.0, run.space.max_abs(here.x)) * scale


def evaluate(run: Run, trial: Trial, C: Any, A: Any) -> Evaluated:
    """What the next iteration starts from; nothing new where A has just served as C."""
    if C is A and trial.gradient is not None and not run.evaluator.has_diagonal:
        return confirmed(run, Evaluated(trial.x, A, trial.value, trial.gradient))
    return confirmed(run, run.evaluator.evaluate(trial.x, A))


def confirmed(run: Run, there: Evaluated) -> Evaluated:
    """A partial set cannot tell convergence: where it seems to, the whole set is asked."""
    subsets = run.evaluator.subsets
    if subsets.full is None or subsets.is_full(there.idx):
        return there
    if run.space.max_abs(there.gradient) > run.options.gtol:
        return there
    return run.evaluator.evaluate(there.x, subsets.full)


def judge(run: Run, state: State, trial: Trial, there: Evaluated, sets: Sets) -> State:
    """Take the step or leave it, and make the state of the next iteration."""
    here, policies = state.here, run.options.policies
    iteration, sizes, n = state.record.iteration + 1, state.sizes, run.evaluator.subsets.n
    comparable = there.idx is here.idx  # otherwise the values are means over other samples
    noise = run.evaluator.noise * max(abs(here.value), abs(there.value))
    achieved = here.value - there.value if comparable else np.nan
    outcome = Outcome(trial.promised, achieved, noise)
    taken = policies.accept(outcome) if comparable else True
    if comparable and sizes is not None and n is not None:
        sizes = policies.resize(sizes, outcome, n)
        if sizes != state.sizes:
            sets = replace(run.sample(iteration, sizes) or sets, A=sets.A)
    if taken:
        state = arrive(run, state, trial, there, outcome)
    else:
        state = replace(state, stalled=state.stalled + 1, decrease=np.nan)
    record = write_record(run, iteration, state.here, state.gradient_norm, sets, trial, taken)
    warned = state.warned or warn_if_asymmetric(run, trial.basis)
    return replace(state, sets=sets, sizes=sizes, warned=warned, record=record)


def arrive(run: Run, state: State, trial: Trial, there: Evaluated, outcome: Outcome) -> State:
    """The state at the end of a step that is taken."""
    norm = run.space.max_abs(there.gradient)
    blur = max(outcome.noise, run.evaluator.slope_error * abs(there.value))
    progress = outcome.achieved > blur or norm < LESS * state.least_gradient
    ratio = norm / state.gradient_norm if state.gradient_norm else 1.0
    moved = trial.d is not None
    return replace(
        state,
        here=there,
        d_prev=(trial.d, *state.d_prev)[: int(run.options.memory)] if moved else state.d_prev,
        gradient_norm=norm,
        least_gradient=min(norm, state.least_gradient),
        forcing=min(FORCING, 0.9 * min(ratio, 1.0) ** 2),
        decrease=outcome.achieved if moved else np.nan,
        stalled=0 if progress else state.stalled + (1 if moved else PATIENCE),
    )


def verdict(run: Run, state: State) -> Status | None:
    """Whether the run is over at `state`, and why."""
    here, options, evaluator = state.here, run.options, run.evaluator
    if here.value <= state.lowest and state.record.iteration:
        return Status.UNBOUNDED
    if not np.isfinite(here.value) or not np.isfinite(state.gradient_norm) or state.broken:
        return Status.NOT_FINITE
    whole = evaluator.subsets.is_full(here.idx)
    if whole and (state.gradient_norm <= options.gtol or small_change(run, state)):
        return Status.CONVERGED
    if state.last:
        return Status.OUT_OF_SETS
    if state.record.iteration >= run.maxiter:
        return Status.MAXITER
    deterministic = whole and state.sets.B is here.idx and state.sets.C is here.idx
    if deterministic and state.stalled >= PATIENCE:
        return evaluator.spent() or Status.PRECISION_LOSS
    return evaluator.spent()


def small_change(run: Run, state: State) -> bool:
    """The tests of ftol and xtol, on a step that has just been taken."""
    options, here = run.options, state.here
    if not state.record.step_norm:
        return False
    scale = max(abs(here.value), abs(here.value + state.decrease), 1.0)
    if options.ftol and 0 <= state.decrease <= options.ftol * scale:
        return True
    limit = options.xtol * max(1.0, run.space.norm(here.x))
    return bool(options.xtol) and state.record.step_norm <= limit


def warn_if_asymmetric(run: Run, basis: Basis) -> bool:
    """Tell the user of a product that is not symmetric; what is used is V^T H V, mirrored."""
    tolerance = max(1e-4, 30 * run.space.eps**0.5)
    if run.evaluator.product_error or basis.asymmetry <= tolerance:
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
        step_norm=run.space.norm(trial.d) if trial and taken and trial.d is not None else 0.0,
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
