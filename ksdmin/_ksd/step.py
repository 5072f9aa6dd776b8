"""Algorithm 3, Krylov Subspace Descent: the step.

Letters as in the paper: sets A, B, C; gradient g, preconditioner D, basis V, curvature H_bar
within it, search directions d_prev.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ksdmin._ksd.accept import accept_or_refuse, judge_step
from ksdmin._ksd.adapt import (
    adjust_damping,
    learn,
    note_progress,
    refine_arithmetic,
    resize_sets,
)
from ksdmin._ksd.affordable import step_costs
from ksdmin._ksd.bfgs import bfgs
from ksdmin._ksd.cost_model import MATRIX_IN_GRADIENTS, Costs
from ksdmin._ksd.damped_step import damped_step
from ksdmin._ksd.exact_space import exact_basis, matrix_is_less_work
from ksdmin._ksd.factor import largest_entry
from ksdmin._ksd.krylov import MIN_REMAINDER, Basis, Growth, krylov_basis
from ksdmin._ksd.model_step import model_direction, model_step, pays
from ksdmin._ksd.outcome import Outcome
from ksdmin._ksd.preconditioning import model_preconditions, preconditioner, with_factors
from ksdmin._ksd.rules.damped_step import DampedStep
from ksdmin._ksd.state import KSDRun, KSDState, Trial
from ksdmin._ksd.subspace import SubspaceObjective, Whitening
from ksdmin._ksd.sum_check import warn_if_sum
from ksdmin._ksd.widening import largest_dim, wide_enough
from ksdmin._problem.arrays import Small
from ksdmin._problem.out_of_memory import is_out_of_memory
from ksdmin._problem.values import changed, made
from ksdmin._result import Record
from ksdmin._run.evaluator import Evaluated, Evaluator
from ksdmin._run.record import write_record
from ksdmin._run.state import Sampling

log = logging.getLogger("ksdmin")

# Of what the inner search has gained: an iteration that is predicted to gain less is not worth it.
# Measured by examples/benchmarks/ablation.py: 0.005 takes 4% more work on 74 classic problems and
# leaves nets 17% more excess loss, 0.1 changes them by -3% and -7%, within chance.
SMALL_GAIN = 0.02


def step(run: KSDRun, state: KSDState) -> KSDState:
    """One iteration of Algorithm 3: its lines 6 to 13, then lines 3 to 5 of the next.

    A pure function of `run` and `state`: called twice, it returns the same next state.
    """
    with run.evaluating(state.ledger, limited=True) as evaluator:
        costs = step_costs(run, evaluator, state)
        state, trial = damped_step_that_fits(run, evaluator, state, costs)
        direction = None if trial else model_direction(run, state, costs)
        if direction is not None and pays(state, direction):
            trial = model_step(run, evaluator, state, direction)
        if trial is None:
            state, basis = build_basis(run, evaluator, state, costs)  # Alg. 3, line 6
            if not basis.finite and basis.dim == 0:
                return changed(state, broken=True, ledger=evaluator.ledger)
            trial = search(run, evaluator, state, basis, costs)  # lines 7 to 12
        evaluator.limited = not run.sampled  # what was found on samples counts once it is judged
        sampling = next_sets(run, state, trial)  # line 3
        there = evaluate(run, evaluator, state, trial, sampling.sets.A)  # lines 13, 4, 5
        before = value_before(run, evaluator, state.here, trial, there)
        outcome = judge_step(run, evaluator, state, trial, before, there, costs)
        rules = note_progress(state.rules, outcome)
        after = accept_or_refuse(run, state, trial, there, outcome, rules)
        after = resize_sets(run, evaluator, after, sampling, outcome, there)
        after = refine_arithmetic(run, evaluator, state, after, outcome)
        after = adjust_damping(state, after, outcome)
        record = step_record(evaluator, after, trial, outcome)
        forecast = None if direction is None else direction.forecast
        model, trust = learn(run, state, after, record, trial, there, outcome, forecast)
        rules = after.rules
        return changed(
            after,
            record=record,
            model=model,
            rules=rules if trust is rules.trust else changed(rules, trust=trust),
            warned=after.warned or warn_if_asymmetric(run, evaluator, trial),
            ledger=evaluator.ledger,
        )


def damped_step_that_fits(
    run: KSDRun, evaluator: Evaluator, state: KSDState, costs: Costs | None
) -> tuple[KSDState, Trial | None]:
    """The damped step, if there is to be one; without any in the state once memory is too small.

    Several processes would have to agree on that: there it is an error.
    """
    try:
        return state, damped_step(run, evaluator, state, costs)
    except Exception as error:
        if run.team.size > 1 or not is_out_of_memory(error):
            raise
    # Outside of `except`: the traceback holds on to what was computed.
    log.warning("out of memory: from here on steps have Krylov spaces, not the rows of a Jacobian")
    return changed(state, rules=changed(state.rules, damped_step=DampedStep.off())), None


def build_basis(
    run: KSDRun, evaluator: Evaluator, state: KSDState, costs: Costs | None
) -> tuple[KSDState, Basis]:
    """The subspace of this iteration: Algorithm 2 on the set B, or Newton directions.

    The state has the diagonal, where Algorithm 2 needs one that was not computed yet.
    """
    if costs is not None and matrix_is_less_work(run, state, costs):
        basis = exact_basis(run, evaluator, state)
        if basis is not None:
            return state, basis
    if evaluator.traits.has_diagonal and state.here.diagonal is None:
        here = evaluator.evaluate(state.here.x, state.here.idx, diagonal=True)
        state = changed(state, here=here)
    state = with_factors(evaluator, state)
    return state, krylov_space(run, evaluator, state)


def krylov_space(run: KSDRun, evaluator: Evaluator, state: KSDState) -> Basis:
    """The Krylov space of Algorithm 2, on the set B."""
    # An old matrix would mislead: products were less work.
    state = changed(state, model=state.model.without_base())
    here, rules = state.here, state.rules
    P = preconditioner(run, state, with_model=model_preconditions(run, state))
    free = run.movable(here)
    product = evaluator.curvature(here.x, state.sets.B)
    wide = wide_enough(run, evaluator, state)

    def enough(growth: Growth) -> bool:
        return rules.forcing.satisfied(growth) or evaluator.spent() or wide(growth)

    return krylov_basis(
        run.space,
        free(here.gradient),
        P,
        product if run.box is None else lambda v: free(product(v)),
        # A model knows the curvature along them already.
        () if state.learns or P.times is None else [free(d) for d in state.d_prev],
        largest_dim(run, state),
        enough,
        # Where it will hardly end before K, the device need not wait for the host.
        ahead=run.space.remote and (rules.forcing.value is None or state.curvature_is_sampled),
        noise=max(evaluator.product_error, evaluator.traits.noise or 0.0),
        workspace=run.workspace,
    )


def search(
    run: KSDRun, evaluator: Evaluator, state: KSDState, basis: Basis, costs: Costs | None
) -> Trial:
    """The optimum of the objective on C within the subspace."""
    here, damping = state.here, state.damping
    if basis.dim == 0:  # no slope on this A, and no previous direction
        return Trial(here.x, None, here.value, here.gradient, 0.0, 0.0, 0, 0, basis=basis)
    lengths = damping > 0 or (run.box is not None and state.C_is_other)
    gram = basis.gram(run.space) if lengths else None
    H_hat = positive_curvature(run, evaluator, basis, damping, gram)  # Alg. 3, line 7
    whitening = Whitening(H_hat)  # lines 8 and 9
    phi = SubspaceObjective(
        evaluator,
        here,
        state.sets.C,
        basis,
        whitening,
        tilted=run.preset.tilted,
        damping=damping,
        gram=gram,
        box=run.box,
    )
    origin, steepest = phi.start(), largest_entry(basis.H_bar)
    if state.record.iteration == 0:
        warn_if_sum(run, state, basis, origin)
    found, iterations = bfgs(  # lines 10 and 11
        phi.at,
        origin,
        maxiter=run.inner_maxiter,
        noise=evaluator.noise * abs(origin.value),
        slope_noise=slope_noise(run, evaluator, here, steepest, whitening),
        lowest=state.lowest,
        enough=end_of_search(run, evaluator, state, basis, costs),
        dear=first_search_limit(evaluator, state, basis.dim),
        spent=evaluator.spent,
    )
    return made(
        Trial,
        x=found.x,
        d=None if found is origin else found.x - here.x,  # line 12
        value=found.loss,
        gradient=found.whole_gradient,
        predicted=origin.value - found.value + phi.damped(found.c),
        model_reduction=basis.decrease(found.c),
        inner_iterations=iterations,
        dim=basis.dim,
        steepest=steepest,
        basis=basis,
    )


def first_search_limit(evaluator: Evaluator, state: KSDState, dim: int) -> Callable[[], bool]:
    """Whether the first search has spent what it may, where slopes are made of differences.

    The first step may cost as many gradients as a matrix may elsewhere; its space has taken up to
    half of them (``_ksd/rules/width.py``). The gradient at x0 tells what one costs. The slopes and
    the gradient of the last point are kept in reserve.
    """
    start = state.record
    if start.iteration or not evaluator.gradient_error or state.curvature_is_sampled:
        return lambda: False
    limit = MATRIX_IN_GRADIENTS * start.nfev - dim
    return lambda: evaluator.counts.nfev >= limit


def end_of_search(
    run: KSDRun, evaluator: Evaluator, state: KSDState, basis: Basis, costs: Costs | None
) -> Callable[[float, float], bool]:
    """When the search ends early: its next iteration would gain less than its share.

    In a sum of losses that is its share of the step's cost, if that is more: sums of losses take
    0.965 of the passes by that (0.984 of the half set aside). Plain functions would take 2% less
    work, but some of them, as Rosenbrock's of 100 unknowns, would end in a higher minimum.
    """
    enough = run.preset.stop_inner_search
    if not run.sampled:
        return lambda predicted, gained: enough(predicted, gained, SMALL_GAIN)
    share = share_of_cost(run, evaluator, state, basis, costs)
    return lambda predicted, gained: enough(predicted, gained, max(SMALL_GAIN, share()))


def share_of_cost(
    run: KSDRun, evaluator: Evaluator, state: KSDState, basis: Basis, costs: Costs | None
) -> Callable[[], float]:
    """What an iteration of the search is of the step's cost so far, that of its end included.

    In samples, a gradient for each. A matrix counts as the products that it replaces.
    """
    of_step = state.here.idx, state.sets.B, state.sets.C
    A, B, C = (run.subsets.size_of(idx) or 1 for idx in of_step)
    start, counts = state.record, evaluator.counts
    known = float((counts.nhev - start.nhev) * B + (A if state.C_is_other else 0))
    if basis.exact and costs is not None:
        known = A * costs.replaced(run.dims.whole_dim) / costs.gradient
    values = 1 + basis.dim if evaluator.gradient_error else 1  # slopes by differences
    return lambda: C / max(C, known + (counts.nfev - start.nfev) / values * C)


def positive_curvature(
    run: KSDRun, evaluator: Evaluator, basis: Basis, damping: float, gram: Small | None
) -> Small:
    """H_hat: H_bar with its eigenvalues made positive, and the damping."""
    floor = max(run.floor, evaluator.product_error)  # below that, H_bar is noise
    H_hat = run.preset.spectrum(
        basis.H_bar, floor, lambda: basis.gram(run.space) if gram is None else gram
    )
    if not damping:
        return H_hat
    return H_hat + damping * (np.eye(basis.dim) if gram is None else gram)


def slope_noise(
    run: KSDRun, evaluator: Evaluator, here: Evaluated, steepest: float, whitening: Whitening
) -> float:
    """The error of slopes got by differences: the value's rounding, and the curvature's share."""
    if not evaluator.gradient_error:
        return 0.0
    scale = abs(here.value) + steepest
    error = evaluator.gradient_error * max(1.0, run.space.max_abs(here.x)) * scale
    return error * whitening.gain


def next_sets(run: KSDRun, state: KSDState, trial: Trial) -> Sampling:
    """The sets of the next iteration, of the sizes that they have by now.

    Where only B is drawn, and the step had no use for it, another one would be no better.
    """
    only_B = run.subsets.n is not None and run.subsets.is_full(state.sets.C)
    if only_B and trial.is_of_model:
        return state.sampling
    iteration, sizes = state.record.iteration + 1, state.rules.set_sizes.sizes
    return run.next_sets(state.sampling, state.here.idx, iteration, sizes)


def evaluate(run: KSDRun, evaluator: Evaluator, state: KSDState, trial: Trial, A: Any) -> Evaluated:
    """What the next iteration starts from; nothing new where A has just served as C.

    A step of the model leaves the diagonal as it is: another would cost as much as the step. After
    one that was made of a matrix there is none until a Krylov space needs it.
    """
    kept = state.here.diagonal if trial.is_of_model else None
    wanted = evaluator.traits.has_diagonal and not rests_on_matrix(state, trial)
    missing = wanted and kept is None
    value, gradient = trial.value, trial.gradient
    of_A = state.sets.C is A or (trial.is_of_model and state.here.idx is A)
    if of_A and gradient is not None and not missing:
        there = made(Evaluated, x=trial.x, idx=A, value=value, gradient=gradient, diagonal=kept)
    else:
        there = evaluator.evaluate(trial.x, A, diagonal=wanted)
    return run.confirm_on_whole_set(evaluator, there, state.first_norm)


def rests_on_matrix(state: KSDState, trial: Trial) -> bool:
    """Whether the step was made of a matrix, which has a diagonal of its own."""
    return trial.has_factor or trial.is_damped or state.model.base is not None


def value_before(
    run: KSDRun, evaluator: Evaluator, here: Evaluated, trial: Trial, there: Evaluated
) -> float:
    """The value before the step, on the samples of the value after it; NaN: not to be compared."""
    if trial.d is None:
        return there.value
    if here.idx is there.idx:
        return here.value
    return evaluator.value(here.x, there.idx) if run.preset.compares else np.nan


def step_record(evaluator: Evaluator, state: KSDState, trial: Trial, outcome: Outcome) -> Record:
    """The line of this iteration in the history."""
    return write_record(
        evaluator,
        state.record.iteration + 1,
        state.here,
        state.gradient_norm,
        state.sets,
        step_norm=outcome.step_norm,
        dim=trial.dim,
        inner_iterations=trial.inner_iterations,
        accepted=outcome.accepted,
    )


def warn_if_asymmetric(run: KSDRun, evaluator: Evaluator, trial: Trial) -> bool:
    """Warn of a product that is not symmetric; what is used is V^T H V, mirrored."""
    if trial.basis is None or evaluator.product_error:
        return False
    asymmetry = trial.basis.asymmetry
    if asymmetry <= MIN_REMAINDER * run.space.eps**0.5:  # the error of products by differences
        return False
    warnings.warn(
        f"The curvature product is not symmetric: v^T H u and u^T H v differ by "
        f"{asymmetry:.1e} of the largest entry. Check hess or hessp against differences of "
        "the gradient (scipy.optimize.check_grad helps).",
        RuntimeWarning,
        stacklevel=2,
    )
    return True
