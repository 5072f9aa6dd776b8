"""How a run of Krylov Subspace Descent begins: its dimensions, its first state, its rules.

And how it goes on in another dtype: in float64, when rounding in float32 hides its steps.
"""

from __future__ import annotations

from dataclasses import fields, replace

from ksdmin._ksd.adapt import reevaluate
from ksdmin._ksd.affordable import (
    costs_on_sets,
    matrix_fits,
    samples_that_fit,
)
from ksdmin._ksd.dimensions import choose_dimensions
from ksdmin._ksd.presets import PAPER, PRESETS
from ksdmin._ksd.quasi_newton import Drift, QuasiNewton
from ksdmin._ksd.rules import Rules
from ksdmin._ksd.rules.contest import Contest
from ksdmin._ksd.rules.damping import SearchDamping
from ksdmin._ksd.rules.gauss_newton import GaussNewtonDamping
from ksdmin._ksd.rules.newton import NewtonChoice
from ksdmin._ksd.rules.quasi_newton import QuasiNewtonChoice
from ksdmin._ksd.rules.set_sizes import OneSet, SetSizes
from ksdmin._ksd.rules.space import Forcing, Width
from ksdmin._ksd.rules.stall import FinerArithmetic, Stall
from ksdmin._ksd.sets import first_sizes
from ksdmin._ksd.state import KSDRun, KSDState
from ksdmin._ksd.steps.gauss_newton import GaussNewtonStep
from ksdmin._ksd.steps.levenberg_marquardt import first_fit
from ksdmin._options import NotGiven, Options
from ksdmin._problem.arrays import Array
from ksdmin._problem.box import Box
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import Sets, Sizes
from ksdmin._problem.values import changed
from ksdmin._result import Record
from ksdmin._run.evaluator import Evaluated, Evaluator, Ledger
from ksdmin._run.fit_tests import GTOL, FitTests
from ksdmin._run.run import Run, write_record
from ksdmin._run.start import first_fields

# B and C have the share 1 / parts of the samples, so that K products cost two passes. (Half of it
# and twice it change no passes beyond chance.)
PARTS = PAPER["krylov_dim"]


def prepare(run: Run, options: Options, traits: Traits) -> KSDRun:
    """What stays the same during the run, with the defaults that depend on the problem."""
    preset = PRESETS[options.preset]
    options, nonlinear = preset.completed(options), traits.nonlinear
    parts = options.krylov_dim or PARTS
    sampled = parts if run.sampled else None
    off = preset.without.union(options.without)
    unit_free = traits.sum_of_squares and FitTests.are_free(options)
    if unit_free:
        has_rows = traits.has_jacobian and GaussNewtonStep.name not in off
        relative = options.gtol_rel if has_rows else max(options.gtol_rel, GTOL)
        options = replace(options, gtol=NotGiven(0.0), gtol_rel=relative)
    return KSDRun(
        **{**vars(run), "options": options, "unit_free": unit_free},
        preset=preset,
        parts=int(parts),
        off=off,
        dims=choose_dimensions(
            run.space,
            options,
            sampled,
            nonlinear,
            factored=traits.has_factors and options.diagonal_power is None,
        ),
    )


def start(run: KSDRun, ledger: Ledger, x0: Array) -> KSDState:
    """Where Algorithm 3 begins."""
    with run.evaluating(ledger) as evaluator:
        traits = evaluator.traits
        e_1 = (run.space.unit(0),) if run.preset.first_direction else ()  # Alg. 3, line 1
        sizes = first_sizes(run, traits)
        sampling = run.first_sets(sizes)  # line 3
        sets = sampling.sets
        diagonal = not first_step_needs_no_diagonal(run, traits, sets)
        first = first_fields(run, evaluator, sampling, x0, diagonal=diagonal)  # lines 4 and 5
        return KSDState(
            **first,
            d_prev=e_1[: run.dims.memory],
            factors=None,
            model=first_model(run),
            rules=first_rules(run, traits, first["here"], sets, sizes, first["record"]),
            warned=False,
            fit=first_fit(run, evaluator, first["here"]),
        )


def first_model(run: KSDRun) -> QuasiNewton:
    """The quasi-Newton model before the first pair.

    It follows how the curvature changes where that is alike along all pairs: in sums of losses of
    linear models. Small nets take 8% more passes to the end with it; plain functions gain nothing.
    """
    drifting = run.preset.drifting and run.sampled and not run.dims.nonlinear
    return QuasiNewton(run.dims.pairs, drift=Drift() if drifting else None)


def first_step_needs_no_diagonal(run: KSDRun, traits: Traits, sets: Sets) -> bool:
    """Whether the first step is made of the whole curvature: it needs no diagonal beside that."""
    costs = costs_on_sets(run, traits, sets.A, sets.B)
    if costs is None or sets.C is not sets.A:
        return False
    K = run.dims.whole_dim
    if costs.rows:
        return first_gauss_newton(run, traits).allowed and costs.rows_are_less_work(K)
    reused = run.dims.pairs > 0 and run.box is None
    return first_newton(run, traits).worthwhile(costs, K, reused=reused)


def first_rules(
    run: KSDRun,
    traits: Traits,
    here: Evaluated,
    sets: Sets,
    sizes: Sizes | None,
    record: Record,
) -> Rules:
    """The rules at the start of a run; this is where each is switched on or off."""
    on, norm = run.applies, record.gradient_norm
    damped = on("damping") and sets.B is not here.idx
    return Rules(
        damping=first_damping(run, traits, here) if damped else SearchDamping.off(),
        forcing=Forcing() if on("forcing") else Forcing.off(),
        width=Width() if on("width") else Width.off(),
        set_sizes=SetSizes(sizes, run.subsets.n) if on("set_sizes") else SetSizes.off(sizes),
        one_set=OneSet(),
        quasi_newton=QuasiNewtonChoice(record)
        if on("quasi-newton")
        else QuasiNewtonChoice.off(record),
        newton=first_newton(run, traits),
        gauss_newton=first_gauss_newton(run, traits),
        contest=Contest(),
        finer_arithmetic=FinerArithmetic() if on("finer_arithmetic") else FinerArithmetic.off(),
        stall=Stall(norm) if on("stall") else Stall.off(norm),
    )


def first_gauss_newton(run: KSDRun, traits: Traits) -> GaussNewtonDamping:
    """Where the problem has rows of a Jacobian, and there is room for enough of them."""
    rows = traits.has_jacobian and samples_that_fit(run, traits) > 0
    return GaussNewtonDamping() if rows else GaussNewtonDamping.off()


def first_newton(run: KSDRun, traits: Traits) -> NewtonChoice:
    """Where there is room for the whole curvature, or for such rows."""
    fits = first_gauss_newton(run, traits).allowed or matrix_fits(run, traits)
    return NewtonChoice() if fits else NewtonChoice.off()


def first_damping(run: KSDRun, traits: Traits, here: Evaluated) -> SearchDamping:
    """The option's, or what suits a model that is not linear in its parameters."""
    if run.options.damping is not None:
        return SearchDamping(run.options.damping)
    if not traits.nonlinear:
        return SearchDamping(0.0)
    return SearchDamping.first(run.space.norm(here.gradient), run.space.norm(here.x))


def moved(run: KSDRun, state: KSDState) -> tuple[KSDRun, KSDState]:
    """The run and its state in the dtype of its problem; most often nothing changes.

    Point and previous directions are converted; the point is evaluated again, as a value with less
    rounding is not to be compared with those before. What was learned of the curvature, and of how
    Gauss-Newton steps do, is dropped: its last differences were mostly rounding.
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
        quasi_newton=QuasiNewtonChoice(record, allowed=state.rules.quasi_newton.allowed),
        gauss_newton=state.rules.gauss_newton.in_finer_arithmetic(),
        contest=Contest(),
    )
    return changed(state, record=record, rules=rules, ledger=evaluator.ledger)
