"""Algorithm 3, Krylov Subspace Descent: the step.

Letters as in the paper: sets A, B, C; gradient g, preconditioner D, basis V, curvature H_bar
within it, search directions d_prev.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ksdmin._ksd.accept import accept_or_refuse, judge_step
from ksdmin._ksd.adapt import (
    adjust_search,
    learn,
    note_progress,
    refine_arithmetic,
    resize_sets,
)
from ksdmin._ksd.bfgs import bfgs
from ksdmin._ksd.krylov import Basis, Growth, krylov_basis
from ksdmin._ksd.model_step import model_basis
from ksdmin._ksd.outcome import Outcome
from ksdmin._ksd.precond import preconditioner
from ksdmin._ksd.quasi_newton import QuasiNewton
from ksdmin._ksd.state import KSDRun, KSDState, Trial
from ksdmin._ksd.subspace import SubspaceObjective, Whitening
from ksdmin._ksd.sum_check import warn_if_sum
from ksdmin._problem.arrays import Array, Small
from ksdmin._problem.values import changed
from ksdmin._run.evaluator import Evaluated, Evaluator
from ksdmin._run.record import write_record
from ksdmin._run.state import Sampling


def step(run: KSDRun, state: KSDState) -> KSDState:
    """One iteration of Algorithm 3: its lines 6 to 13, then lines 3 to 5 of the next.

    A pure function of `run` and `state`: called twice, it returns the same next state.
    """
    with run.evaluating(state.ledger) as evaluator:
        basis = build_basis(run, evaluator, state)  # Alg. 3, line 6
        if not basis.finite and basis.dim == 0:
            return changed(state, broken=True, ledger=evaluator.ledger)
        trial = search(run, evaluator, state, basis)  # lines 7 to 12
        sampling = next_sets(run, state)  # line 3
        there = evaluate(run, evaluator, trial, state.sets.C, sampling.sets.A)  # lines 13, 4, 5
        before = value_before(run, evaluator, state.here, trial, there)
        outcome = judge_step(run, evaluator, state, trial, before, there)
        after = accept_or_refuse(run, state, trial, there, outcome)
        after = note_progress(after, outcome)
        after = resize_sets(run, evaluator, after, sampling, outcome, there)
        after = refine_arithmetic(run, evaluator, state, after, outcome)
        after = adjust_search(run, state, after, outcome)
        after = with_record(run, evaluator, after, trial, outcome)
        after = learn(run, evaluator.noise, state, after, trial, there, outcome)
        return changed(after, ledger=evaluator.ledger)


def build_basis(run: KSDRun, evaluator: Evaluator, state: KSDState) -> Basis:
    """The subspace of this iteration: Algorithm 2 on the set B, or the model's step alone."""
    here, rules = state.here, state.rules
    free = run.movable(here)
    solve = preconditioned(run, evaluator, state)
    if rules.trust.trusted and not state.curvature_is_sampled:
        basis = model_basis(run, state, solve(free(here.gradient)))
        if basis is not None:
            return basis
    product = evaluator.curvature(here.x, state.sets.B)
    dims, sampled = run.dims, state.curvature_is_sampled
    K, memory = (rules.width.value, dims.memory) if sampled else (dims.whole_dim, dims.whole_memory)

    def enough(growth: Growth) -> bool:
        return rules.forcing.satisfied(growth) or evaluator.spent() is not None

    return krylov_basis(
        run.space,
        free(here.gradient),
        solve,
        lambda v: free(product(v)),
        [free(d) for d in state.d_prev[:memory]],
        K,
        enough,
        # Where it will hardly end before K, the device need not wait for the host.
        ahead=run.space.remote and (rules.forcing.value is None or sampled),
        keep=state.learns,
    )


def preconditioned(run: KSDRun, evaluator: Evaluator, state: KSDState) -> Callable[[Array], Array]:
    """w -> D^-1 w: the diagonal, the quasi-Newton model on it, and the bounds."""
    options, here = run.options, state.here
    power = evaluator.traits.diagonal_power
    power = power if options.diagonal_power is None else options.diagonal_power
    D = preconditioner(run.space, here.diagonal, run.floor, power)
    free = run.movable(here)
    # On samples the pairs are of A, the products of B: with both, badly conditioned regressions
    # take up to 40% more passes.
    model = QuasiNewton(0) if state.curvature_is_sampled else state.model
    model = model if run.box is None else model.restricted(free)

    def solve(w: Array) -> Array:
        return free(model.solve(w, D))

    return solve


def search(run: KSDRun, evaluator: Evaluator, state: KSDState, basis: Basis) -> Trial:
    """The optimum of the objective on C within the subspace."""
    here, damping = state.here, state.damping
    if basis.dim == 0:  # no slope on this A, and no previous direction
        return Trial(here.x, None, here.value, here.gradient, 0.0, 0.0, 0, basis)
    H_hat = positive_curvature(run, evaluator, basis, damping)  # Alg. 3, line 7
    whitening = Whitening(H_hat)  # lines 8 and 9
    phi = SubspaceObjective(
        evaluator,
        here,
        state.sets.C,
        basis,
        whitening,
        tilted=run.preset.tilted,
        damping=damping,
        box=run.box,
    )
    origin = phi.start()
    if state.record.iteration == 0:
        warn_if_sum(run, state, basis, origin)
    found, iterations = bfgs(  # lines 10 and 11
        phi.at,
        origin,
        maxiter=run.inner_maxiter if basis.measured else 1,
        noise=evaluator.noise * abs(origin.value),
        slope_noise=slope_noise(run, evaluator, here, basis) * whitening.gain,
        lowest=state.lowest,
        enough=run.preset.stop_inner_search,
        spent=lambda: evaluator.spent() is not None,
    )
    return Trial(
        found.x,
        None if found is origin else found.x - here.x,  # line 12
        found.loss,
        found.whole_gradient,
        predicted=origin.value - found.value + phi.damped(found.c),
        model_reduction=basis.decrease(found.c) if basis.measured else np.nan,
        inner_iterations=iterations,
        basis=basis,
    )


def positive_curvature(run: KSDRun, evaluator: Evaluator, basis: Basis, damping: float) -> Small:
    """H_hat: H_bar with its eigenvalues made positive, and the damping."""
    floor = max(run.floor, evaluator.product_error)  # below that, H_bar is noise
    H_hat = run.preset.spectrum(basis.H_bar, floor)
    return H_hat + damping * np.eye(basis.dim) if damping else H_hat


def slope_noise(run: KSDRun, evaluator: Evaluator, here: Evaluated, basis: Basis) -> float:
    """The error of slopes got by differences: the value's rounding, and the curvature's share."""
    if not evaluator.gradient_error:
        return 0.0
    scale = abs(here.value) + float(np.abs(basis.H_bar).max())
    return evaluator.gradient_error * max(1.0, run.space.max_abs(here.x)) * scale


def next_sets(run: KSDRun, state: KSDState) -> Sampling:
    """The sets of the next iteration, of the sizes that they have by now."""
    iteration, sizes = state.record.iteration + 1, state.rules.set_sizes.sizes
    return run.next_sets(state.sampling, state.here.idx, iteration, sizes)


def evaluate(run: KSDRun, evaluator: Evaluator, trial: Trial, C: Any, A: Any) -> Evaluated:
    """What the next iteration starts from; nothing new where A has just served as C."""
    if C is A and trial.gradient is not None and not evaluator.traits.has_diagonal:
        there = Evaluated(trial.x, A, trial.value, trial.gradient)
    else:
        there = evaluator.evaluate(trial.x, A)
    return run.confirm_on_whole_set(evaluator, there)


def value_before(
    run: KSDRun, evaluator: Evaluator, here: Evaluated, trial: Trial, there: Evaluated
) -> float:
    """The value before the step, on the samples of the value after it; NaN: not to be compared."""
    if trial.d is None:
        return there.value
    if here.idx is there.idx:
        return here.value
    return evaluator.value(here.x, there.idx) if run.preset.compares else np.nan


def with_record(
    run: KSDRun, evaluator: Evaluator, state: KSDState, trial: Trial, outcome: Outcome
) -> KSDState:
    """The state with the line of this iteration in the history."""
    record = write_record(
        evaluator,
        state.record.iteration + 1,
        state.here,
        state.gradient_norm,
        state.sets,
        step_norm=outcome.step_norm,
        dim=trial.basis.dim,
        inner_iterations=trial.inner_iterations,
        accepted=outcome.accepted,
    )
    warned = state.warned or warn_if_asymmetric(run, evaluator, trial.basis)
    return changed(state, record=record, warned=warned)


def warn_if_asymmetric(run: KSDRun, evaluator: Evaluator, basis: Basis) -> bool:
    """Warn of a product that is not symmetric; what is used is V^T H V, mirrored."""
    tolerance = max(1e-4, 30 * run.space.eps**0.5)
    if evaluator.product_error or basis.asymmetry <= tolerance:
        return False
    warnings.warn(
        f"The curvature product is not symmetric: v^T H u and u^T H v differ by "
        f"{basis.asymmetry:.1e} of the largest entry. Check hess or hessp against differences of "
        "the gradient (scipy.optimize.check_grad helps).",
        RuntimeWarning,
        stacklevel=2,
    )
    return True
