"""The search within a subspace: lines 7 to 12 of Algorithm 3."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy.optimize import OptimizeWarning

from ksdmin._ksd.cost_model import MATRIX_IN_GRADIENTS, Costs
from ksdmin._ksd.factor import largest_entry
from ksdmin._ksd.krylov import Basis
from ksdmin._ksd.state import KSDRun, KSDState, Trial
from ksdmin._ksd.subspace import SubspaceObjective, SubspacePoint, Whitening, bfgs
from ksdmin._problem.arrays import Small
from ksdmin._problem.values import made
from ksdmin._run.evaluator import Evaluated, Evaluator

# Of what the inner search has gained: an iteration that is predicted to gain less is not worth it.
# Measured by examples/benchmarks/ablation.py: 0.005 takes 4% more work on 74 classic problems and
# leaves nets 17% more excess loss, 0.1 changes them by -3% and -7%, within chance.
SMALL_GAIN = 0.02
# Of the number of samples: the relative deviation that sampling may explain.
NEAR = 0.25


def search(
    kind: str,
    run: KSDRun,
    evaluator: Evaluator,
    state: KSDState,
    basis: Basis,
    costs: Costs | None,
) -> Trial:
    """The optimum of the objective on C within the subspace."""
    here, damping = state.here, state.damping
    if basis.dim == 0:  # no slope on this A, and no previous direction
        return Trial(kind, here.x, None, here.value, here.gradient, 0.0, 0.0, 0, 0, basis=basis)
    lengths = damping > 0 or (run.box is not None and state.C_is_other)
    gram = basis.gram(run.space) if lengths else None
    H_hat = positive_curvature(run, evaluator, basis, damping, gram)  # Alg. 3, line 7
    whitening = Whitening(H_hat)  # lines 8 and 9
    phi = SubspaceObjective(
        evaluator,
        here,
        state.sets.C,
        basis,
        whitening,
        tilted=run.preset.tilted,
        damping=damping,
        gram=gram,
        box=run.box,
    )
    origin, steepest = phi.start(), largest_entry(basis.H_bar)
    if state.record.iteration == 0:
        warn_if_sum(run, state, basis, origin)
    found, iterations = bfgs(  # lines 10 and 11
        phi.at,
        origin,
        maxiter=run.inner_maxiter,
        noise=evaluator.noise * abs(origin.value),
        slope_noise=slope_noise(run, evaluator, here, steepest, whitening),
        lowest=state.lowest,
        enough=end_of_search(run, evaluator, state, basis, costs),
        dear=first_search_limit(evaluator, state, basis.dim),
        spent=evaluator.spent,
    )
    return made(
        Trial,
        kind=kind,
        x=found.x,
        d=None if found is origin else found.x - here.x,  # line 12
        value=found.loss,
        gradient=found.whole_gradient,
        predicted=origin.value - found.value + phi.damped(found.c),
        model_reduction=basis.decrease(found.c),
        inner_iterations=iterations,
        dim=basis.dim,
        steepest=steepest,
        basis=basis,
    )


def first_search_limit(
    evaluator: Evaluator, state: KSDState, dim: int
) -> Callable[[], bool] | None:
    """Whether the first search has spent what it may, where slopes are made of differences.

    The first step may cost as many gradients as a matrix may elsewhere; its space has taken up to
    half of them (``_ksd/rules/width.py``). The gradient at x0 tells what one costs. The slopes and
    the gradient of the last point are kept in reserve.
    """
    start = state.record
    if start.iteration or not evaluator.gradient_error or state.curvature_is_sampled:
        return None
    limit = MATRIX_IN_GRADIENTS * start.nfev - dim
    return lambda: evaluator.counts.nfev >= limit


def end_of_search(
    run: KSDRun, evaluator: Evaluator, state: KSDState, basis: Basis, costs: Costs | None
) -> Callable[[float, float], bool]:
    """When the search ends early: its next iteration would gain less than its share.

    In a sum of losses that is its share of the step's cost, if that is more: sums of losses take
    0.965 of the passes by that (0.984 of the half set aside). Plain functions would take 2% less
    work, but some of them, as Rosenbrock's of 100 unknowns, would end in a higher minimum.
    """
    enough = run.preset.stop_inner_search
    if not run.sampled:
        return lambda predicted, gained: enough(predicted, gained, SMALL_GAIN)
    share = share_of_cost(run, evaluator, state, basis, costs)
    return lambda predicted, gained: enough(predicted, gained, max(SMALL_GAIN, share()))


def share_of_cost(
    run: KSDRun, evaluator: Evaluator, state: KSDState, basis: Basis, costs: Costs | None
) -> Callable[[], float]:
    """What an iteration of the search is of the step's cost so far, that of its end included.

    In samples, a gradient for each. A matrix counts as the products that it replaces.
    """
    of_step = state.here.idx, state.sets.B, state.sets.C
    A, B, C = (run.subsets.size_of(idx) or 1 for idx in of_step)
    start, counts = state.record, evaluator.counts
    known = float((counts.nhev - start.nhev) * B + (A if state.C_is_other else 0))
    if basis.exact and costs is not None:
        known = A * costs.replaced(run.dims.whole_dim) / costs.gradient
    values = 1 + basis.dim if evaluator.gradient_error else 1  # slopes by differences
    return lambda: C / max(C, known + (counts.nfev - start.nfev) / values * C)


def positive_curvature(
    run: KSDRun, evaluator: Evaluator, basis: Basis, damping: float, gram: Small | None
) -> Small:
    """H_hat: H_bar with its eigenvalues made positive, and the damping."""
    floor = max(run.floor, evaluator.product_error)  # below that, H_bar is noise
    H_hat = run.preset.spectrum(
        basis.H_bar, floor, lambda: basis.gram(run.space) if gram is None else gram
    )
    if not damping:
        return H_hat
    return H_hat + damping * (np.eye(basis.dim) if gram is None else gram)


def slope_noise(
    run: KSDRun, evaluator: Evaluator, here: Evaluated, steepest: float, whitening: Whitening
) -> float:
    """The error of slopes got by differences: the value's rounding, and the curvature's share."""
    if not evaluator.gradient_error:
        return 0.0
    scale = abs(here.value) + steepest
    error = evaluator.gradient_error * max(1.0, run.space.max_abs(here.x)) * scale
    return error * whitening.gain


def warn_if_sum(run: KSDRun, state: KSDState, basis: Basis, origin: SubspacePoint) -> None:
    """Warn where value and slope at the start grow with the number of samples, as sums do.

    Those on A are compared with those on C. A mean has about the same on both; one whose value is
    near zero may have any ratio of values, but not that of slopes as well.
    """
    here, size_of = state.here, run.subsets.size_of
    size_A, size_C = size_of(here.idx), size_of(state.sets.C)
    if run.subsets.n is None or not size_A or not size_C:
        return
    if NEAR * size_A < size_C:  # chance may look like a sum
        return
    steepest = abs(basis.g_bar).argmax()
    slope = 0.0 if origin.slopes is None else float(origin.slopes[steepest])
    pairs = [(here.value, origin.loss), (float(basis.g_bar[steepest]), slope)]
    times = size_A / size_C
    if all(abs(on_A - times * on_C) < NEAR * abs(times * on_C) for on_A, on_C in pairs):
        warnings.warn(
            f"fun(x, idx) must be the mean over idx, not the sum: at x0 it is "
            f"{here.value / origin.loss:.3g} times as large on {size_A} samples as on {size_C}. "
            "Divide by the number of rows in idx (len(X[idx])), in jac and hessp as well",
            OptimizeWarning,
            stacklevel=2,
        )
