"""Whether the whole curvature, a matrix or the rows of a Jacobian, fits into memory; its costs."""

from __future__ import annotations

import math

from ksdmin._ksd.cost_model import (
    MATRIX_IN_GRADIENTS,
    SAMPLES_PER_UNKNOWN,
    Costs,
    curvature_samples,
)
from ksdmin._ksd.dimensions import MAX_BASIS_BYTES
from ksdmin._ksd.state import KSDRun, KSDState
from ksdmin._problem.protocol import Traits
from ksdmin._run.evaluator import Evaluator

HELD_ROWS = 2  # at a time: those of the blocks and of all of them, or a copy in float64
HELD_MATRICES = 4  # at a time: what the problem computed, ours, its factor, its inverse


def matrix_fits(run: KSDRun, traits: Traits, samples: int | None = None) -> bool:
    """Whether the problem has its whole curvature, the run may take it, and there is room for it.

    Of so many samples; of all, where that is not said.

    A net without a Jacobian keeps its Krylov spaces: six small ones of 61 to 97 parameters gained
    nothing by the matrix.
    """
    n = run.space.n
    if not run.applies("exact_space"):
        return False
    if traits.has_jacobian:
        rows = traits.rows_per_sample * (samples or run.subsets.n or 1)
        affordable = held_bytes(n, rows) <= room(run, traits)
        return run.applies("damped_step") and affordable
    return traits.has_matrix and not traits.nonlinear and held_bytes(n, 0) <= room(run, traits)


def held_bytes(n: int, rows: float) -> float:
    """What it takes: the rows, if there are any, and matrices in the smaller dimension."""
    small = min(n, rows) if rows else n
    return 8.0 * (HELD_ROWS * rows * n + HELD_MATRICES * small**2)


def room(run: KSDRun, traits: Traits) -> float:
    """How many bytes it may take."""
    most = MAX_BASIS_BYTES if traits.matrix_memory is None else traits.matrix_memory
    return min(most, run.options.memory_budget or math.inf)


def first_curvature_samples(run: KSDRun, traits: Traits) -> int | None:
    """How many samples B has at first for a matrix, A and C being everything; None: no matrix.

    Damped steps need all of them: the search for their damping is of all. They are the first ones
    only where fewer rows would say little of the whole, or where they cost a few gradients.
    """
    N = run.subsets.n
    if N is None or run.subsets.asked or not matrix_fits(run, traits):
        return None
    costs, K = costs_of(run, traits, N, N), run.dims.whole_dim
    if traits.has_jacobian:
        few = costs.rows <= SAMPLES_PER_UNKNOWN * costs.n
        cheap = costs.exact <= MATRIX_IN_GRADIENTS * costs.gradient
        return N if (few or cheap) and costs.exact <= costs.krylov(K) else None
    return curvature_samples(costs, K)


def costs_of(run: KSDRun, traits: Traits, A: int, B: int) -> Costs:
    """What a step with sets of these sizes costs."""
    return Costs(
        run.space.n,
        A,
        B,
        traits.matrix_cost,
        traits.rows_per_sample * B if traits.has_jacobian else 0.0,
        traits.product_cost,
        traits.call_cost,
    )


def step_costs(run: KSDRun, evaluator: Evaluator, state: KSDState) -> Costs | None:
    """What the next step costs; None where there is to be no matrix."""
    traits = evaluator.traits
    if not traits.has_matrix and not traits.has_jacobian:
        return None
    A, B = (run.subsets.size_of(idx) or 1 for idx in (state.here.idx, state.sets.B))
    if not matrix_fits(run, traits, B):
        return None
    return costs_of(run, traits, A, B).with_rank(state.rules.damped_step.rank)
