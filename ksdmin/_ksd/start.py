"""How a run of Krylov Subspace Descent begins: its dimensions, its first state, its rules.

Also how it moves to float64, when rounding in float32 hides its steps.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace

from ksdmin._ksd.affordable import (
    costs_on_sets,
    matrix_fits,
    products_make_matrix,
    samples_that_fit,
)
from ksdmin._ksd.cost_model import samples_of_products
from ksdmin._ksd.dimensions import choose_dimensions
from ksdmin._ksd.line_search import PATIENCE
from ksdmin._ksd.presets import PAPER, PRESETS
from ksdmin._ksd.quasi_newton import Drift, QuasiNewton
from ksdmin._ksd.rules import Rules
from ksdmin._ksd.rules.contest import Contest
from ksdmin._ksd.rules.damping import SearchDamping
from ksdmin._ksd.rules.quasi_newton import QuasiNewtonChoice
from ksdmin._ksd.rules.set_sizes import OneSet, SetSizes
from ksdmin._ksd.rules.space import Forcing, Width
from ksdmin._ksd.rules.stall import FinerArithmetic, Stall
from ksdmin._ksd.rules.whole_curvature import GaussNewtonDamping, NewtonChoice
from ksdmin._ksd.sets import first_sizes
from ksdmin._ksd.state import KSDRun, KSDState, reevaluate
from ksdmin._ksd.steps import gauss_newton
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

# B and C have the share 1 / parts of the samples, so that K products cost two passes. (With half
# or twice the share, passes change by chance only.)
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
        has_rows = traits.has_jacobian and gauss_newton.NAME not in off
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
    """The first state of Algorithm 3."""
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

    It follows changes of the curvature in sums of losses of linear models, where they are similar
    along all pairs. Small nets take 8% more passes to the end with it; plain functions gain
    nothing.
    """
    drifting = run.preset.drifting and run.sampled and not run.dims.nonlinear
    return QuasiNewton(run.dims.pairs, drift=Drift() if drifting else None)


def first_step_needs_no_diagonal(run: KSDRun, traits: Traits, sets: Sets) -> bool:
    """Whether the first step uses the whole curvature, and so needs no diagonal."""
    costs = costs_on_sets(run, traits, sets.A, sets.B)
    if costs is None or sets.C is not sets.A:
        return False
    K = run.dims.whole_dim
    if costs.rows:
        return first_gauss_newton(run, traits).allowed and costs.rows_come_first(K)
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
    """The rules at the start of a run; each is switched on or off here."""
    on, norm = run.applies, record.gradient_norm
    damped = on("damping") and sets.B is not here.idx
    return Rules(
        damping=first_damping(run, traits, here) if damped else SearchDamping(0.0, False),
        forcing=Forcing() if on("forcing") else Forcing(None),
        width=Width(wide=on("width")),
        set_sizes=SetSizes(sizes, run.subsets.n if on("set_sizes") else None),
        one_set=OneSet(),
        quasi_newton=QuasiNewtonChoice(record, allowed=on("quasi-newton")),
        newton=first_newton(run, traits),
        gauss_newton=first_gauss_newton(run, traits),
        contest=Contest(),
        finer_arithmetic=FinerArithmetic(allowed=on("finer_arithmetic")),
        stall=Stall(norm, patience=PATIENCE if on("stall") else math.inf),
    )


def first_gauss_newton(run: KSDRun, traits: Traits) -> GaussNewtonDamping:
    """On if the problem has the rows of a Jacobian, and enough of them fit into memory."""
    return GaussNewtonDamping(allowed=traits.has_jacobian and samples_that_fit(run, traits) > 0)


def first_newton(run: KSDRun, traits: Traits) -> NewtonChoice:
    """On if the whole curvature, or such rows, fit into memory."""
    if products_make_matrix(run, traits):
        return NewtonChoice(samples=samples_of_products(run.subsets.n or 1, run.space.n))
    fits = first_gauss_newton(run, traits).allowed or matrix_fits(run, traits)
    return NewtonChoice(allowed=fits)


def first_damping(run: KSDRun, traits: Traits, here: Evaluated) -> SearchDamping:
    """As the option says, or for models that are not linear in their parameters."""
    if run.options.damping is not None:
        return SearchDamping(run.options.damping)
    if not traits.nonlinear:
        return SearchDamping(0.0)
    return SearchDamping.first(run.space.norm(here.gradient), run.space.norm(here.x))


def moved(run: KSDRun, state: KSDState) -> tuple[KSDRun, KSDState]:
    """The run and its state in the dtype of its problem; usually nothing changes.

    The point and the previous directions are converted. The point is evaluated again, because a
    value with less rounding cannot be compared with those before. What was learned of the curvature
    and of Gauss-Newton steps is dropped: its last differences were mostly rounding.
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
    """The state with its row of the history updated to its present value."""
    old, norm, rules = state.record, state.gradient_norm, state.rules
    of_step = ("step_norm", "dim", "inner_iterations", "accepted", "kind")
    kept = {name: getattr(old, name) for name in of_step}
    record = write_record(evaluator, old.iteration, state.here, norm, state.sets, **kept)
    return changed(state, record=record, ledger=evaluator.ledger).with_rules(
        quasi_newton=QuasiNewtonChoice(record, allowed=rules.quasi_newton.allowed),
        gauss_newton=rules.gauss_newton.in_finer_arithmetic(),
        contest=Contest(),
    )
