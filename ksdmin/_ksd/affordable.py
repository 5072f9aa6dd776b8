"""Whether the whole curvature (a matrix, or the rows of a Jacobian) fits into memory; its cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ksdmin._ksd.cost_model import Costs, curvature_samples
from ksdmin._ksd.dimensions import MAX_BASIS_BYTES
from ksdmin._ksd.state import KSDRun, KSDState
from ksdmin._problem.arrays import EPS
from ksdmin._problem.protocol import Traits
from ksdmin._run.evaluator import Evaluator

HELD_ROWS = 2  # held at the same time: the rows of the blocks and all rows, or a copy in float64
HELD_MATRICES = 4  # held at the same time: what the problem computed, ours, its factor, its inverse


def matrix_fits(run: KSDRun, traits: Traits, samples: int | None = None) -> bool:
    """Whether the problem has the whole curvature, the run may use it, and it fits into memory.

    For so many `samples`; None: for all of them.

    A net without a Jacobian keeps its Krylov spaces: six small nets of 61 to 97 parameters gained
    nothing from the matrix.
    """
    n = run.space.n
    if traits.has_jacobian:
        rows = traits.rows_per_sample * (samples or run.subsets.n or 1)
        affordable = held_bytes(n, rows) <= room(run, traits)
        return run.applies("gauss-newton") and affordable
    taken = run.applies("newton") and traits.has_matrix and not traits.nonlinear
    return taken and held_bytes(n, 0) <= room(run, traits)


def products_make_matrix(run: KSDRun, traits: Traits) -> bool:
    """Whether a matrix may be made of a product for each column.

    Of sums of losses only, whose sample for it the run may choose; and not if a gradient is made of
    n values already.
    """
    drawn = run.sampled and run.subsets.n is not None and not run.subsets.asked
    suits = drawn and not traits.nonlinear and traits.gradient_accuracy == 1
    wanted = suits and not brings_curvature(traits) and run.applies("newton")
    return wanted and held_bytes(run.space.n, 0) <= room(run, traits)


def brings_curvature(traits: Traits) -> bool:
    """Whether the problem itself has the whole curvature, in one form or the other."""
    return traits.has_matrix or traits.has_jacobian


def held_bytes(n: int, rows: float) -> float:
    """The memory needed: the rows, if there are any, and matrices in the smaller dimension."""
    small = min(n, rows) if rows else n
    in_double = np.dtype(np.float64).itemsize
    matrices = HELD_MATRICES + bool(rows)  # those of rows are factorised twice
    return in_double * (HELD_ROWS * rows * n + matrices * small**2)


def room(run: KSDRun, traits: Traits) -> float:
    """How many bytes the whole curvature may take."""
    most = MAX_BASIS_BYTES if traits.matrix_memory is None else traits.matrix_memory
    return min(most, run.options.memory_budget or math.inf)


def first_curvature_samples(run: KSDRun, traits: Traits) -> int | None:
    """How many samples B begins with for a matrix, with all samples in A and C; None: no matrix.

    The rows of Gauss-Newton steps are those of all samples, or of as many as fit into memory.
    """
    N, K = run.subsets.n, run.dims.whole_dim
    if N is None or run.subsets.asked:
        return None
    whole = costs_of(run, traits, N, N)
    if traits.has_jacobian:
        B = samples_that_fit(run, traits)
        return B if B and whole.rows_come_first(K) else None
    return curvature_samples(whole, K) if matrix_fits(run, traits) else None


def samples_that_fit(run: KSDRun, traits: Traits) -> int:
    """All samples, or the largest of a half, a quarter, ... of them whose rows fit into memory.

    0 if these rows say less than a Krylov space: there are fewer of them than it has vectors.
    """
    B = run.subsets.n or 1
    while not matrix_fits(run, traits, B):
        B //= 2
        if traits.rows_per_sample * B < run.dims.whole_dim:
            return 0
    return B


def costs_of(run: KSDRun, traits: Traits, A: int, B: int) -> Costs:
    """What a step with sets of these sizes costs."""
    return Costs(
        run.space.n,
        A,
        B,
        traits.matrix_cost if brings_curvature(traits) else None,
        traits.rows_per_sample * B if traits.has_jacobian else 0.0,
        traits.product_cost,
        traits.call_cost,
        of_products=not brings_curvature(traits),
        in_double=2.0 if run.space.eps > EPS else 1.0,
    )


def step_costs(run: KSDRun, evaluator: Evaluator, state: KSDState) -> Costs | None:
    """What the next step costs; None if no matrix is to be used."""
    traits, N = evaluator.traits, run.subsets.n or 1
    samples = state.rules.newton.next_samples(N)
    if samples is not None:
        return costs_of(run, traits, N, samples) if run.subsets.is_full(state.here.idx) else None
    if not brings_curvature(traits):
        return None
    costs = costs_on_sets(run, traits, state.here.idx, state.sampling.sets.B)
    return None if costs is None else costs.with_rank(state.rules.gauss_newton.rank)


def costs_on_sets(run: KSDRun, traits: Traits, A: Any, B: Any) -> Costs | None:
    """The same with the gradient of a set A, and the curvature of B."""
    in_A, in_B = (run.subsets.size_of(idx) or 1 for idx in (A, B))
    return costs_of(run, traits, in_A, in_B) if matrix_fits(run, traits, in_B) else None
