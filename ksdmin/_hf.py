"""Hessian-free optimisation (Martens 2010), on the same verbs as Krylov Subspace Descent.

An iteration minimises the quadratic model on the curvature set B, damped by lambda |d|^2 / 2, with
conjugate gradients. It goes back along their iterates as long as that lowers the loss on A, and
takes a step along the result. How well the model predicted the loss on B decides the next lambda.

On an indefinite Hessian conjugate gradients end at the first direction without positive curvature,
and the iterate before it is taken (if it is the first one, the preconditioned gradient).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ksdmin._options import HESSIAN_FREE, HFOptions
from ksdmin._problem.arrays import Array, Space
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import Sizes
from ksdmin._problem.values import changed
from ksdmin._run.evaluator import Evaluator, KeptFactors, Ledger, renewed
from ksdmin._run.levenberg_marquardt import adjusted
from ksdmin._run.run import Run, Sampling, State, write_record
from ksdmin._run.start import first_fields

PARTS = 8  # B has this share of the samples, unless the user asks for another size
FEWEST = 1000  # least number of samples in B for a linear model, as in KSD
MIN_DIAGONAL = 1e-10  # share of the largest entry, if there is no damping
SHRINK = 0.95  # conjugate gradients start from this share of the last solution
ARMIJO, STEP_FACTOR, MAX_TRIALS = 1e-2, 0.8, 60
PATIENCE = 3  # iterations in a row without a step: the run has stalled


@dataclass(frozen=True)
class HFRun(Run):
    """What stays the same."""

    options: HFOptions  # the user's
    sizes: Sizes | None  # of the sets; None where the user draws them


@dataclass(frozen=True)
class HFState(State):
    """Where it stands."""

    damping: float  # Martens' lambda
    # Kronecker factors for the preconditioner, where the problem has any.
    factors: KeptFactors | None
    solution: Array | None  # the last end of the conjugate gradients
    refused: int  # iterations in a row without a step

    @property
    def stalled(self) -> bool:
        """Whether the last iterations found no step."""
        return self.refused >= PATIENCE


def prepare(run: Run, options: HFOptions, traits: Traits) -> HFRun:
    """What stays the same during the run."""
    sizes = run.subsets.sizes(
        PARTS, FEWEST, nonlinear=traits.nonlinear, least=int(traits.fewest_samples)
    )
    return HFRun(**{**vars(run), "options": options}, sizes=sizes)


def start(run: HFRun, ledger: Ledger, x0: Array) -> HFState:
    """The first state of HF."""
    with run.evaluating(ledger) as evaluator:
        first = first_fields(run, evaluator, run.first_sets(run.sizes), x0)
        damping = run.options.damping
        return HFState(**first, damping=damping, factors=None, solution=None, refused=0)


def step(run: HFRun, state: HFState) -> HFState:
    """One iteration."""
    with run.evaluating(state.ledger, limited=True) as evaluator:
        here, damping, iteration = state.here, state.damping, state.record.iteration
        factors = renewed(state.factors, evaluator, here, damping, iteration)
        state = changed(state, factors=factors)
        H = evaluator.curvature(here.x, state.sets.B)
        kept, iterations = conjugate_gradients(
            run.space,
            lambda v: H(v) + damping * v,
            here.gradient,
            None if state.solution is None else SHRINK * state.solution,
            preconditioner(run, state),
            run.options.inner_maxiter,
            evaluator.spent,
        )
        d, value = walk_back(evaluator, state, kept)
        actual, predicted = reductions(evaluator, state, d, H)
        rate = line_search(evaluator, state, d, value)
        if run.sampled:  # what was found on samples must be judged first
            evaluator.let_finish()
        sampling = run.next_sets(state.sampling, here.idx, iteration + 1, run.sizes)
        taken = rate * d if rate > 0 else None
        after = accept_step(run, evaluator, state, taken, sampling, iterations)
        return changed(
            after,
            damping=adjusted(damping, actual, predicted),
            solution=kept[-1],
            ledger=evaluator.ledger,
        )


def preconditioner(run: HFRun, state: HFState) -> Callable[[Array], Array]:
    """The inverse of (diagonal + lambda)^0.75, or that of Kronecker factors."""
    D, xp, factors = state.here.diagonal, run.space.xp, state.factors
    if factors is not None and factors.damped is not None:
        return partial(factors.damped.solve, run.space)
    if D is None:
        return lambda r: r
    M = D + state.damping
    if not state.damping:  # an entry may be zero
        largest = run.space.largest(M)
        M = xp.clip(M, MIN_DIAGONAL * largest, largest) if largest > 0 else xp.ones_like(M)
    powered = M**run.options.diagonal_power
    return lambda r: r / powered


def walk_back(evaluator: Evaluator, state: HFState, kept: list[Array]) -> tuple[Array, float]:
    """The iterate with the lowest loss on A, going back from the last one; and that loss."""
    here = state.here
    best, value = kept[-1], evaluator.value(here.x + kept[-1], here.idx)
    for d in kept[-2::-1]:
        earlier = evaluator.value(here.x + d, here.idx)
        if not earlier < value and math.isfinite(value):
            break
        best, value = d, earlier
    return best, value


def reductions(
    evaluator: Evaluator, state: HFState, d: Array, H: Callable[[Array], Array]
) -> tuple[float, float]:
    """The actual reduction on B, and that predicted by the undamped model."""
    here, B = state.here, state.sets.B
    inner = evaluator.space.inner
    predicted = -float(inner(d, H(d))) / 2 - float(inner(here.gradient, d))
    before = here.value if B is here.idx else evaluator.value(here.x, B)
    return before - evaluator.value(here.x + d, B), predicted


def line_search(evaluator: Evaluator, state: HFState, d: Array, value: float) -> float:
    """The share of d to take, by Armijo's test on A; 0 if no share lowers the loss."""
    here, rate = state.here, 1.0
    slope = float(evaluator.space.inner(here.gradient, d))
    for _ in range(MAX_TRIALS):
        if value <= here.value + ARMIJO * rate * min(slope, 0.0):
            return rate
        if evaluator.spent():
            break
        rate *= STEP_FACTOR
        value = evaluator.value(here.x + rate * d, here.idx)
    return 0.0


def accept_step(
    run: HFRun,
    evaluator: Evaluator,
    state: HFState,
    d: Array | None,
    sampling: Sampling,
    iterations: int,
) -> HFState:
    """The state after the step d, or without one at the same point on the next set."""
    here, sets, moved = state.here, sampling.sets, d is not None
    x = here.x if d is None else here.x + d
    there = here
    if moved or sets.A is not here.idx:
        there = evaluator.evaluate(x, sets.A, diagonal=True)
    there = run.confirm_on_whole_set(evaluator, there, state.first_norm)
    norm = run.stationarity(there.x, there.gradient)
    comparable = there.idx is here.idx
    record = write_record(
        evaluator,
        state.record.iteration + 1,
        there,
        norm,
        sets,
        step_norm=0.0 if d is None else run.space.norm(d),
        inner_iterations=iterations,
        accepted=moved,
        kind=HESSIAN_FREE,
    )
    return changed(
        state,
        here=there,
        sampling=sampling,
        gradient_norm=norm,
        last_decrease=here.value - there.value if moved and comparable else math.nan,
        refused=0 if moved else state.refused + 1,
        record=record,
    )


# Conjugate gradients on the damped quadratic model, as Martens ends and keeps them

MIN_PROGRESS = 5e-4  # relative improvement of the model per iteration below which they end
WINDOW, WINDOW_SHARE = 10, 0.1  # over so many iterations, or this share of them
FIRST_KEPT, SPACING = 5, 1.3  # the iterates that the step may go back to


def conjugate_gradients(
    space: Space,
    product: Callable[[Array], Array],
    g: Array,
    begin: Array | None,
    precondition: Callable[[Array], Array],
    maxiter: int,
    spent: Callable[[], bool],
) -> tuple[list[Array], int]:
    """Minimise q(d) = d^T A d / 2 + g^T d, preconditioned, from `begin` or zero.

    `precondition` multiplies by the inverse of the preconditioner. Returns the iterates that are
    kept, with the last, and the number of iterations.
    """
    d = g * 0 if begin is None else begin
    r = g if begin is None else product(d) + g
    y = precondition(r)
    p, along = -y, float(space.inner(r, y))
    values, kept, next_kept = [0.0], [], FIRST_KEPT
    for i in range(1, maxiter + 1):
        Ap = product(p)
        curvature = float(space.inner(p, Ap))
        if not curvature > 0:
            break
        alpha = along / curvature
        d, r = d + alpha * p, r + alpha * Ap
        y = precondition(r)
        along, before = float(space.inner(r, y)), along
        values.append(float(space.inner(d, r + g)) / 2)
        if i == next_kept:
            kept.append(d)
            next_kept = math.ceil(next_kept * SPACING)
        if finished(values, i) or along == 0 or spent():
            break
        p = (along / before) * p - y
    steps = len(values) - 1
    if steps == 0 and begin is None:
        d = -y  # no positive curvature
    if not kept or kept[-1] is not d:
        kept.append(d)
    return kept, steps


def finished(values: list[float], i: int) -> bool:
    """Martens' test: the model has hardly improved over the last iterations."""
    k = max(WINDOW, math.ceil(WINDOW_SHARE * i))
    return i > k and values[i] < 0 and (values[i] - values[i - k]) / values[i] < MIN_PROGRESS * k
