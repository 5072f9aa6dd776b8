"""Which preconditioner a step takes (Algorithm 3, line 5)."""

from __future__ import annotations

from ksdmin._ksd.precond import Preconditioner
from ksdmin._ksd.state import KSDRun, KSDState
from ksdmin._problem.values import changed


def preconditioner(run: KSDRun, state: KSDState, *, with_model: bool = True) -> Preconditioner:
    """The diagonal, the quasi-Newton model on it, and the bounds."""
    D, model = state.here.diagonal, state.model
    free = None if run.box is None else run.movable(state.here)
    if free is not None and with_model:
        model = model.restricted(run.space, free)
    P = model.preconditioner(run.space, D) if with_model else Preconditioner.diagonal(D)
    return P if free is None else changed(P, solve=lambda w: free(P.solve(w)), is_diagonal=False)


def model_preconditions(run: KSDRun, state: KSDState) -> bool:
    """Whether the model preconditions the next Krylov space.

    Where its vectors may cost more than products do, it does so only if the last space was too
    small: the model stands in for the vectors that it did not have. On samples its pairs are of A,
    the products of B: with both, badly conditioned regressions take up to 40% more.
    """
    if state.curvature_is_sampled:
        return False
    last_space = state.rules.trust.end.dim
    return run.dims.model_is_cheap or last_space >= run.dims.whole_dim
