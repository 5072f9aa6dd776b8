"""A step that rests on the quasi-Newton model alone, and costs no product."""

from __future__ import annotations

import numpy as np

from ksdmin._ksd.krylov import Basis
from ksdmin._ksd.rules.trust import MAX_LEAP
from ksdmin._ksd.state import KSDRun, KSDState
from ksdmin._problem.arrays import Array


def model_basis(run: KSDRun, state: KSDState, u: Array) -> Basis | None:
    """The step `u` of the model as a basis of one vector; None where it is no good."""
    g, space = state.here.gradient, run.space
    slope, size = (float(part) for part in space.to_host(g @ u, (u @ u) ** 0.5))
    if not slope > 0 or not size <= MAX_LEAP * last_step(run, state):
        return None
    curvature = np.array([[slope / size**2]])  # u^T P u = u^T g
    V = space.put(space.rows(1), (0, slice(None)), u / size)
    return Basis(V, curvature, np.array([slope / size]), measured=False)


def last_step(run: KSDRun, state: KSDState) -> float:
    """The length of the last step that was taken."""
    return run.space.norm(state.d_prev[0]) if state.d_prev else state.record.step_norm
