"""How a run goes on in another dtype: in float64, when rounding in float32 hides its steps."""

from __future__ import annotations

from dataclasses import fields

from ksdmin._ksd.adapt import reevaluate
from ksdmin._ksd.rules.contest import Contest
from ksdmin._ksd.rules.trust import Trust
from ksdmin._ksd.start import first_model, prepare
from ksdmin._ksd.state import KSDRun, KSDState
from ksdmin._problem.box import Box
from ksdmin._problem.values import changed
from ksdmin._run.evaluator import Evaluator
from ksdmin._run.run import Run, write_record


def moved(run: KSDRun, state: KSDState) -> tuple[KSDRun, KSDState]:
    """The run and its state where the vectors of its problem live: mostly they are there.

    Point and previous directions are converted; the point is evaluated again, as a value with less
    rounding is not to be compared with those before. What was learned of the curvature, and of how
    damped steps do, stays behind: of late, it was made of differences that were mostly rounding.
    """
    problem = state.ledger.problem
    space = problem.home(run.space)
    if space is run.space:
        return run, state
    plain = Run(**{field.name: getattr(run, field.name) for field in fields(Run)})
    convert, box = space.in_own_dtype, run.box
    box = None if box is None else Box(space, convert(box.lower), convert(box.upper))
    run = prepare(changed(plain, space=space, box=box), run.options, problem.traits)
    state = changed(
        state,
        here=changed(state.here, x=convert(state.here.x)),
        d_prev=tuple(convert(d) for d in state.d_prev),
        factors=None,
        model=first_model(run),
    )
    with run.evaluating(state.ledger) as evaluator:
        state = reevaluate(run, evaluator, state, state.here.idx)
        return run, recorded(evaluator, state)


def recorded(evaluator: Evaluator, state: KSDState) -> KSDState:
    """The state with the line of the history for the value that it has by now."""
    old = state.record
    record = write_record(
        evaluator,
        old.iteration,
        state.here,
        state.gradient_norm,
        state.sets,
        step_norm=old.step_norm,
        dim=old.dim,
        inner_iterations=old.inner_iterations,
        accepted=old.accepted,
        kind=old.kind,
    )
    rules = changed(
        state.rules,
        trust=Trust(record, allowed=state.rules.trust.allowed),
        damped_step=state.rules.damped_step.in_finer_arithmetic(),
        contest=Contest(),
    )
    return changed(state, record=record, rules=rules, ledger=evaluator.ledger)
