"""Whether a run is over, and why."""

from __future__ import annotations

import math

from ksdmin._result import Status
from ksdmin._run.run import Run
from ksdmin._run.state import State


def verdict(run: Run, state: State) -> Status | None:
    """Why the run ends at `state`; None: it goes on."""
    here, sampling, options = state.here, state.sampling, run.options
    if here.value <= state.lowest and state.record.iteration:
        return Status.UNBOUNDED
    if not math.isfinite(here.value) or not math.isfinite(state.gradient_norm) or state.broken:
        return Status.NOT_FINITE
    best = state.ledger.best
    if best is not None and best[1] <= options.fmin:
        return Status.TARGET
    whole = not run.sampled or run.subsets.is_full(here.idx)
    if whole and state.gradient_norm <= run.gradient_target(state.first_norm):
        return Status.CONVERGED
    small = small_change(run, state) if whole and (options.ftol or options.xtol) else None
    if small is not None:
        return small
    if sampling.exhausted:
        return Status.OUT_OF_SETS
    if state.record.iteration >= run.maxiter:
        return Status.MAXITER
    deterministic = whole and sampling.sets.B is here.idx and sampling.sets.C is here.idx
    spent = run.budget.spent(state.ledger.counts)
    if deterministic and state.stalled:
        return spent or Status.PRECISION_LOSS
    return spent


def small_change(run: Run, state: State) -> Status | None:
    """Which of the tests of ftol and xtol holds, of a step that was just taken and may count."""
    options, here, decrease = run.options, state.here, state.last_decrease
    if not state.record.step_norm or math.isnan(decrease):
        return None
    scale = max(abs(here.value), abs(here.value + decrease), 1.0)
    if options.ftol and 0 <= decrease <= options.ftol * scale:
        return Status.FTOL
    limit = options.xtol * max(1.0, run.space.norm(here.x)) if options.xtol else 0.0
    return Status.XTOL if state.record.step_norm <= limit else None
