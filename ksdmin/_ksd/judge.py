"""Is the step taken, is the run over, and what is written down: everything that judges."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from ksdmin._ksd.damping import adjusted, told
from ksdmin._ksd.krylov import Basis
from ksdmin._ksd.policies import Outcome
from ksdmin._ksd.state import Run, State, Trial
from ksdmin._problem.subsets import Sets, Sizes
from ksdmin._result import Record, Status
from ksdmin._run.evaluator import Evaluated

FORCING = 0.5  # the largest relative residual of a Newton step
LEAST_FORCING = 1e-3  # what the model's being right may bring it to
GOLDEN, LARGE = (1 + 5**0.5) / 2, 0.1  # a large one may fall to this power of itself at once
LESS = 0.9  # of the smallest gradient norm so far: that is progress, whatever the value does
PATIENCE = 3  # iterations that neither lower the value nor the gradient, before giving up
FELT = 0.05  # of the promised decrease: damping that costs less is not felt
FAINT = 10  # times the rounding of the value: a step that promises less asks for finer arithmetic


def judge(
    run: Run, state: State, trial: Trial, before: float, there: Evaluated, sets: Sets
) -> State:
    """Take the step or leave it, and make the state of the next iteration.

    `before` is the value at the last point, on the samples of the new one.
    """
    iteration = state.record.iteration + 1
    noise = run.evaluator.noise * max(abs(before), abs(there.value))
    achieved = before - there.value
    gain = steeper(state.here, trial, achieved, there)
    outcome = Outcome(
        promised=trial.promised,
        expected=trial.promised + gain,
        achieved=achieved,
        noise=noise,
        modelled=trial.modelled + gain,
    )
    taken = run.options.policies.accept(outcome)
    if taken:
        state = arrive(run, state, trial, there, outcome)
    else:
        state = replace(state, stalled=state.stalled + trial.basis.measured, decrease=np.nan)
    sizes = resized(run, state, outcome, there)
    if sizes is not None and sizes != state.sizes:
        state, sets = grow(run, state, sets, sizes, iteration)
    short = state.opening and state.damping > 0  # steps are short on purpose, and promise little
    faint = outcome.promised <= FAINT * run.evaluator.noise * abs(before)
    if faint and not short and run.evaluator.sharpen():
        state = anew(run, state, state.here.idx)
    state, more = replace(state, sets=sets, sizes=sizes), of_trial(run, trial, taken)
    held = held_back(state, trial, more["step_norm"])
    return replace(
        state,
        **next_damping(state, before, outcome),
        decrease=np.nan if held else state.decrease,
        width=next_width(run, state, trial, outcome, held),
        warned=state.warned or warn_if_asymmetric(run, trial.basis),
        record=write_record(run, iteration, state.here, state.gradient_norm, sets, **more),
    )


def steeper(here: Evaluated, trial: Trial, achieved: float, there: Evaluated) -> float:
    """By how much the step goes down steeper on the samples of the new value than on the old.

    The slope that they have is that of the parabola through the two values and the new gradient. A
    gradient of few samples is noise in part: that must not pass for an error of the model.
    """
    if there.idx is here.idx or trial.d is None:
        return 0.0
    slope = -2 * achieved - float(there.gradient @ trial.d)
    return float(here.gradient @ trial.d) - slope


def resized(run: Run, state: State, outcome: Outcome, there: Evaluated) -> Sizes | None:
    """The sizes of the next sets; None where the user draws them."""
    policies, n, sizes = run.options.policies, run.evaluator.subsets.n, state.sizes
    if sizes is None or n is None:
        return None
    larger = policies.resize(sizes, outcome, n, state.stalled >= PATIENCE)
    asked = run.evaluator.subsets.is_full(there.idx)  # A may have been too few to tell convergence
    return replace(larger, A=n) if asked and policies.compares else larger


def grow(run: Run, state: State, sets: Sets, sizes: Sizes, iteration: int) -> tuple[State, Sets]:
    """Larger sets: what failed on the smaller ones may succeed, and A has another gradient."""
    larger = run.sample(iteration, sizes) or sets
    if state.sizes is not None and sizes.A == state.sizes.A:
        return replace(state, stalled=0), replace(larger, A=sets.A)
    if state.here.idx is larger.A:
        return replace(state, least_gradient=state.gradient_norm, stalled=0), larger
    return anew(run, state, larger.A), larger


def anew(run: Run, state: State, A: Any) -> State:
    """The state at the same point, for a function that is another: of other samples, or sharper."""
    here = run.evaluator.evaluate(state.here.x, A)
    norm = run.stationarity(here.x, here.gradient)
    return replace(
        state,
        here=here,
        gradient_norm=norm,
        least_gradient=norm,
        decrease=np.nan,
        stalled=0,
    )


def arrive(run: Run, state: State, trial: Trial, there: Evaluated, outcome: Outcome) -> State:
    """The state at the end of a step that is taken."""
    norm = run.stationarity(there.x, there.gradient)
    blur = max(outcome.noise, run.evaluator.slope_error * abs(there.value))
    progress = outcome.achieved > blur or norm < LESS * state.least_gradient
    ratio = norm / state.gradient_norm if state.gradient_norm else 1.0
    moved, measured = trial.d is not None, trial.basis.measured
    return replace(
        state,
        here=there,
        d_prev=(trial.d, *state.d_prev)[: run.dims.memory] if moved else state.d_prev,
        gradient_norm=norm,
        least_gradient=min(norm, state.least_gradient),
        forcing=next_forcing(state.forcing, ratio, outcome),
        decrease=outcome.achieved if moved else np.nan,
        stalled=0 if progress else state.stalled + measured * (1 if moved else PATIENCE),
    )


def held_back(state: State, trial: Trial, step_norm: float) -> bool:
    """Whether the damping kept the step short, by more than next to nothing of its promise."""
    return state.damping * step_norm**2 / 2 > FELT * max(trial.promised, 0.0)


def next_damping(state: State, before: float, outcome: Outcome) -> dict[str, Any]:
    """The damping of the next step: where nothing was compared, the same."""
    opening = state.opening and told(outcome.achieved, outcome.modelled)
    damping = adjusted(state.damping, outcome.achieved, outcome.modelled, opening)
    damping = state.damping if np.isnan(before) else damping
    return {"damping": damping if state.partial else 0.0, "opening": opening}


def next_width(run: Run, state: State, trial: Trial, outcome: Outcome, held: bool) -> int:
    """K for the next sample, unless it was the damping that limited the step, not the space."""
    if not state.partial or held:
        return state.width
    full = trial.basis.full
    return run.dims.next_width(state.width, full, outcome.achieved, outcome.modelled)


def next_forcing(forcing: float, ratio: float, outcome: Outcome) -> float:
    """How well the next Newton step is to be solved; no sudden demands.

    That a short step went as modelled tells little of the next, long one: hence the safeguard
    (Eisenstat and Walker's), which lets the forcing fall by degrees as long as it is large.
    """
    error = model_error(outcome.achieved, outcome.modelled)
    known = forcing if np.isnan(outcome.modelled) else error  # NaN: no products
    wanted = min(FORCING, 0.9 * min(ratio, 1.0) ** 2, known)
    degree = forcing**GOLDEN
    return max(wanted, degree) if degree > LARGE else wanted


def model_error(achieved: float, modelled: float) -> float:
    """How far the quadratic model was off (Eisenstat and Walker's first choice, in values).

    A Newton step need not be better than the model; and where that is right, it pays to be as good.
    """
    if not modelled > 0:
        return FORCING
    return max(abs(achieved / modelled - 1), LEAST_FORCING)


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
    """The tests of ftol and xtol, on a step that has just been taken, and that can tell."""
    options, here = run.options, state.here
    if not state.record.step_norm or np.isnan(state.decrease):
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
    *,
    step_norm: float = 0.0,
    dim: int = 0,
    inner_iterations: int = 0,
    accepted: bool = True,
) -> Record:
    """The line of the history for an iteration."""
    counts, size_of = run.evaluator.counts, run.evaluator.subsets.size_of
    return Record(
        iteration=iteration,
        value=here.value,
        gradient_norm=gradient_norm,
        step_norm=step_norm,
        accepted=accepted,
        dim=dim,
        size_A=size_of(here.idx),
        size_B=size_of(sets.B),
        size_C=size_of(sets.C),
        inner_iterations=inner_iterations,
        nfev=counts.nfev,
        njev=counts.njev,
        nhev=counts.nhev,
        passes=counts.passes,
        seconds=run.evaluator.seconds,
    )


def of_trial(run: Run, trial: Trial, taken: bool) -> dict[str, Any]:
    """What a trial adds to the line of its iteration."""
    moved = taken and trial.d is not None
    return {
        "step_norm": run.space.norm(trial.d) if moved else 0.0,
        "dim": trial.basis.dim,
        "inner_iterations": trial.inner_iterations,
        "accepted": taken,
    }
