"""The Newton step: a search within directions made of the whole curvature matrix.

Problem: at x with gradient g and matrix H, both restricted to the variables that may move, find a
few directions that span a better subspace than any K products.

Algorithm: the variables are scaled by the diagonal D of H, as in Marquardt's method. If Cholesky
shows that H is positive definite, the Newton direction -H^-1 g is the space. If H is of a sample,
or the last such step gained far less than predicted, the damped direction -(H + D)^-1 g joins it.
(With dampings of 1e-4 D and 1e-2 D as well, runs take no less.) If H is not definite, its
eigenvectors give the same with |eigenvalues|, and the direction of most negative curvature. The
search within the space is that of Algorithm 3.

This happens on the host, in float64; the directions go back to the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import lapack

from ksdmin._ksd.factor import Factor, cholesky, eigenvectors
from ksdmin._ksd.krylov import MIN_REMAINDER, Basis
from ksdmin._ksd.state import KSDRun, KSDState
from ksdmin._ksd.steps.kind import Offer, Proposal, Turn
from ksdmin._ksd.steps.search import search
from ksdmin._problem.arrays import EPS, Array, Small, to_host
from ksdmin._problem.subsets import Sets, Sizes
from ksdmin._problem.values import changed
from ksdmin._run.evaluator import Evaluated, Evaluator

NAME = "newton"


def offer(turn: Turn) -> Offer | None:
    """A step from the whole matrix, if it fits into memory.

    Only if gradient and search use the same samples. On other samples the search has to find what
    the sample of the curvature has not seen, and a wide space is better for that. If the matrix is
    made of products, the step has its own sets.
    """
    _, _, state, costs = turn
    if costs is None or costs.rows or (state.C_is_other and not costs.of_products):
        return None
    return Offer(partial(propose, turn)) if state.rules.newton.allowed else None


def propose(turn: Turn) -> Proposal:
    """The step; none if no variable is free to move, or there is no matrix after all."""
    run, evaluator, state, costs = turn
    if costs is not None and costs.of_products:
        state = with_own_sets(run, state)
        turn = turn._replace(state=state)
    basis = newton_basis(run, evaluator, state)
    if basis is None:
        return Proposal(state, None)
    if not basis.finite:
        return Proposal(changed(state, broken=True), None)
    return Proposal(state, search(turn, NAME, basis))


def with_own_sets(run: KSDRun, state: KSDState) -> KSDState:
    """The state with the sets of a step whose matrix is made of products.

    The matrix is of a sample, and the search is on A.
    """
    A, N, newton = state.here.idx, run.subsets.n, state.rules.newton
    assert N is not None
    samples = newton.next_samples(N)
    assert samples is not None
    B = A if samples == N else run.draw(state.record.iteration, Sizes(N, samples, 1)).B
    sampling = changed(state.sampling, sets=Sets(A, B, A))
    newton = changed(newton, samples=samples)
    return changed(state, sampling=sampling).with_rules(newton=newton)


def serves_more_steps(run: KSDRun, state: KSDState) -> bool:
    """Whether the next steps may use the matrix: not with bounds, where free variables change."""
    return state.model.capacity > 0 and run.box is None


def newton_basis(run: KSDRun, evaluator: Evaluator, state: KSDState) -> Basis | None:
    """The directions; None if no variable is free to move, or there is no matrix after all."""
    here = state.here
    free = free_variables(run, here)
    g = to_host(here.gradient)[free]
    if not g.any():
        return None
    matrix = evaluator.matrix(here.x, state.sets.B)
    if matrix is None:
        return None
    H = to_host(matrix)
    del matrix
    if not np.isfinite(H).all():
        return Basis(run.space.rows(0), np.zeros((0, 0)), np.zeros(0), finite=False)
    asymmetry = relative_asymmetry(H)
    H = H if free.all() else H[np.ix_(free, free)]
    H = (H + H.T) / 2 if asymmetry > MIN_REMAINDER * EPS else H
    damped = state.curvature_is_sampled or state.rules.newton.damped
    exact = not evaluator.product_error
    found = newton_directions(H, g, run.floor, damped=damped, exact=exact)
    V = orthonormal(found.rows)
    factor = None
    if found.lower is not None and serves_more_steps(run, state):
        factor = Factor(run.space.to_device(found.lower), run.space.to_device(found.scale))
    products = V @ H
    HV = to_space(run, products, free)
    return Basis(
        to_space(run, V, free),
        products @ V.T,
        V @ g,
        asymmetry=asymmetry,
        products=lambda E: run.space.to_device(E) @ HV,
        factor=factor,
        of_matrix=True,
    )


def free_variables(run: KSDRun, here: Evaluated) -> Small:
    """A mask of the variables that no active bound holds."""
    if run.box is None:
        return np.ones(run.space.n, dtype=bool)
    free: Small = to_host(run.box.held(here.x, here.gradient)) == 0
    return free


def to_space(run: KSDRun, rows: Small, free: Small) -> Array:
    """Rows with entries for the free variables, as vectors of the run."""
    if free.all():
        return run.space.to_device(rows)
    full = np.zeros((len(rows), run.space.n))
    full[:, free] = rows
    return run.space.to_device(full)


def relative_asymmetry(H: Small) -> float:
    """The largest H_jk - H_kj, relative to the largest magnitude of an entry."""
    largest = max(float(H.max()), -float(H.min()))
    return float((H - H.T).max()) / largest if largest else 0.0


@dataclass
class Directions:
    """Directions as rows; for a definite H, the Cholesky factor in scaled variables, too."""

    rows: Small  # the directions
    scale: Small  # what the variables are multiplied by
    lower: Small | None  # the factor; None where H is not definite


def newton_directions(
    H: Small, g: Small, floor: float, *, damped: bool, exact: bool = True
) -> Directions:
    """The Newton direction, the damped one if asked for, and that of most negative curvature."""
    scale = marquardt_scale(H, floor, exact=exact)
    H, g = H * np.outer(scale, scale), g * scale
    lower = cholesky(H, MIN_REMAINDER * EPS * len(H))
    if lower is None:
        return Directions(by_eigenvectors(H, g, floor) * scale, scale, None)
    rows = [lapack.dpotrs(lower, -g, lower=1)[0]]
    if damped:
        shifted = lapack.dpotrf(H + np.eye(len(g)), lower=1)[0]
        rows.append(lapack.dpotrs(shifted, -g, lower=1)[0])
    return Directions(np.stack(rows) * scale, scale, lower)


def marquardt_scale(H: Small, floor: float, *, exact: bool) -> Small:
    """D^-1/2, D being the magnitudes on the diagonal of H, kept away from zero.

    In other units of the variables, the scaled H is the same. If H is positive definite,
    H_jk^2 < D_j D_k, and entries are as they are. Where it is not, an entry may be far smaller than
    the rest of its row says. (If H is made of differences, small entries are rounding.)
    """
    D = np.abs(np.diagonal(H))
    largest = float(D.max())
    if not largest:
        return np.ones(len(D))
    least = np.full(len(D), largest)
    if exact:
        with np.errstate(over="ignore"):
            coupled = (H / np.where(D > 0, D, np.inf) * H).max(axis=1)
        least = np.minimum(coupled, largest)
    D = np.maximum(D, floor * least)
    scale: Small = np.where(D > 0, D, largest) ** -0.5
    return scale


def by_eigenvectors(H: Small, g: Small, floor: float) -> Small:
    """Newton directions with |eigenvalues|, undamped and damped, and most negative curvature."""
    values, E = eigenvectors(H)
    sizes, along = np.abs(values), E.T @ g
    sizes = np.maximum(sizes, floor * (sizes.max() or 1.0))
    rows = [-E @ (along / (sizes + damping)) for damping in (0.0, 1.0)]
    if values[0] < 0:
        rows.append(E[:, 0] if along[0] <= 0 else -E[:, 0])
    return np.stack(rows)


def orthonormal(rows: Small) -> Small:
    """The rows made orthonormal, without those in the span of the rows before."""
    kept: list[Small] = []
    for row in rows / np.linalg.norm(rows, axis=1, keepdims=True):
        for _ in range(2):
            for v in kept:
                row = row - (v @ row) * v
        size = float(np.linalg.norm(row))
        if size > EPS**0.5:
            kept.append(row / size)
    return np.stack(kept)
