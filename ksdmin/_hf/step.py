"""Hessian-free optimisation (Martens 2010), on the same verbs as Krylov Subspace Descent.

An iteration minimises the quadratic model of the curvature set B, damped by lambda |d|^2 / 2, with
conjugate gradients; goes back along their iterates as long as that lowers the loss on A; and takes
a step along what is left. How well the model told the loss on B decides the next lambda.

On an indefinite Hessian conjugate gradients end at the first direction of curvature that is not
positive, and the iterate before it is taken (where it is the first: the preconditioned gradient).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from ksdmin._ksd import step as _ksd
from ksdmin._ksd.damping import adjusted
from ksdmin._ksd.judge import write_record
from ksdmin._ksd.state import Run, State
from ksdmin._problem.arrays import Array

SHRINK = 0.95  # of the last solution: where conjugate gradients start
PROGRESS = 5e-4  # relative, of the model an iteration: with less they end
WINDOW, SHARE = 10, 0.1  # over so many iterations, or this share of them
FIRST_KEPT, SPACING = 5, 1.3  # the iterates that the step may go back to
DAMPING, POWER = 45.0, 0.75  # at first; of the preconditioner: where the options say nothing
ARMIJO, SHORTER, TRIALS = 1e-2, 0.8, 60


@dataclass(frozen=True)
class HFState(State):
    """Where a run of HF stands.

    Attributes
    ----------
    solution : array or None
        The last end of the conjugate gradients.
    """

    solution: Array | None


@dataclass(frozen=True)
class Solution:
    """What conjugate gradients came to: the iterates kept, the last one last; how many."""

    kept: list[Array]
    iterations: int


def start(run: Run, x0: Array) -> HFState:
    """Where HF begins."""
    state = _ksd.start(run, x0, grows=False)
    same = {field.name: getattr(state, field.name) for field in fields(State)}
    damping = DAMPING if run.options.damping is None else run.options.damping
    return HFState(**{**same, "damping": damping}, solution=None)


def step(run: Run, state: State) -> HFState:
    """One iteration."""
    assert isinstance(state, HFState)
    here, evaluator, damping = state.here, run.evaluator, state.damping
    H = evaluator.curvature(here.x, state.sets.B)
    found = conjugate_gradients(
        lambda v: H(v) + damping * v,
        here.gradient,
        None if state.solution is None else SHRINK * state.solution,
        preconditioner(run, state),
        run.inner_maxiter,
        lambda: evaluator.spent() is not None,
    )
    d, value = walk_back(run, state, found.kept)
    next_damping = adjusted(damping, *decreases(run, state, d, H))
    rate = line_search(run, state, d, value)
    sets, before = run.next_sets(state)
    before = replace(before, damping=next_damping, solution=found.kept[-1])
    return arrive(run, before, rate * d, rate > 0, sets, found.iterations)


def preconditioner(run: Run, state: HFState) -> Array | None:
    """(diagonal + lambda)^0.75; None where the problem has no diagonal."""
    power = run.options.diagonal_power
    D = state.here.diagonal
    return None if D is None else (D + state.damping) ** (POWER if power is None else power)


def conjugate_gradients(
    product: Callable[[Array], Array],
    g: Array,
    begin: Array | None,
    M: Array | None,
    maxiter: int,
    spent: Callable[[], bool],
) -> Solution:
    """Minimise q(d) = d^T A d / 2 + g^T d, preconditioned by M, from `begin` or zero."""
    d = g * 0 if begin is None else begin
    r = g if begin is None else product(d) + g
    y = r if M is None else r / M
    p, along = -y, float(r @ y)
    values, kept, next_kept = [0.0], [], FIRST_KEPT
    for i in range(1, maxiter + 1):
        Ap = product(p)
        curvature = float(p @ Ap)
        if not curvature > 0:
            break
        alpha = along / curvature
        d, r = d + alpha * p, r + alpha * Ap
        y = r if M is None else r / M
        along, before = float(r @ y), along
        values.append(float(d @ (r + g)) / 2)
        if i == next_kept:
            kept.append(d)
            next_kept = math.ceil(next_kept * SPACING)
        if finished(values, i) or along == 0 or spent():
            break
        p = (along / before) * p - y
    steps = len(values) - 1
    if steps == 0 and begin is None:
        d = -y  # no curvature to go by
    if not kept or kept[-1] is not d:
        kept.append(d)
    return Solution(kept, steps)


def finished(values: list[float], i: int) -> bool:
    """Martens' test: the model has hardly improved over the last iterations."""
    k = max(WINDOW, math.ceil(SHARE * i))
    return i > k and values[i] < 0 and (values[i] - values[i - k]) / values[i] < PROGRESS * k


def walk_back(run: Run, state: HFState, kept: list[Array]) -> tuple[Array, float]:
    """The iterate that the loss on A prefers, from the last one back; and that loss."""
    here, evaluator = state.here, run.evaluator
    best, value = kept[-1], evaluator.value(here.x + kept[-1], here.idx)
    for d in kept[-2::-1]:
        earlier = evaluator.value(here.x + d, here.idx)
        if not earlier < value and math.isfinite(value):
            break
        best, value = d, earlier
    return best, value


def decreases(
    run: Run, state: HFState, d: Array, H: Callable[[Array], Array]
) -> tuple[float, float]:
    """What the step achieves on B, and what the undamped model promised."""
    here, evaluator, B = state.here, run.evaluator, state.sets.B
    modelled = -float(d @ H(d)) / 2 - float(here.gradient @ d)
    before = here.value if B is here.idx else evaluator.value(here.x, B)
    return before - evaluator.value(here.x + d, B), modelled


def line_search(run: Run, state: HFState, d: Array, value: float) -> float:
    """How much of d to go, by Armijo's test on A; 0 where no part of it lowers the loss."""
    here, rate = state.here, 1.0
    slope = float(here.gradient @ d)
    for _ in range(TRIALS):
        if value <= here.value + ARMIJO * rate * min(slope, 0.0):
            return rate
        if run.evaluator.spent() is not None:
            break
        rate *= SHORTER
        value = run.evaluator.value(here.x + rate * d, here.idx)
    return 0.0


def arrive(run: Run, state: HFState, d: Array, moved: bool, sets: Any, iterations: int) -> HFState:
    """The state after the step."""
    here, iteration = state.here, state.record.iteration + 1
    x = here.x + d if moved else here.x
    there = here if not moved and sets.A is here.idx else run.evaluator.evaluate(x, sets.A)
    there = _ksd.confirmed(run, there)
    norm = run.stationarity(there.x, there.gradient)
    step_norm = run.space.norm(d) if moved else 0.0
    comparable = there.idx is here.idx
    return replace(
        state,
        here=there,
        sets=sets,
        gradient_norm=norm,
        decrease=here.value - there.value if moved and comparable else math.nan,
        stalled=0 if moved else state.stalled + 1,
        record=write_record(
            run, iteration, there, norm, sets, step_norm=step_norm, inner_iterations=iterations,
            accepted=moved,
        ),
    )  # fmt: skip
