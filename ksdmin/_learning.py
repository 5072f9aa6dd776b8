"""How a run teaches its quasi-Newton model, and when it takes the model's word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ksdmin._arrays import Array
from ksdmin._krylov import Basis
from ksdmin._state import Run, State

PROOF = 0.1  # what a step leaves of the gradient where its model has proved right
LEAP = 10  # times the last step: so far a step may go that no product has confirmed


def learns(state: State) -> bool:
    """Whether there is a model to teach: gradients and products of one and the same function."""
    return state.model.capacity > 0 and not state.partial


def learn(run: Run, before: State, after: State, basis: Basis) -> State:
    """What the iteration tells the model, and whether the next step may rest on it alone.

    It may after a step that left little of the gradient, and then as long as the gradient falls.
    """
    if not learns(before):
        return after
    model, old, new = before.model, before.here, after.here
    if basis.measured and basis.dim:
        model = model.with_basis(run.space, basis)
    taken = new.x is not old.x and new.idx is old.idx
    if taken:
        model = model.with_pair(new.x - old.x, new.gradient - old.gradient)
    limit = before.gradient_norm * (PROOF if basis.measured else 1.0)
    return replace(after, model=model, trusted=taken and after.gradient_norm <= limit)


def model_basis(run: Run, state: State, u: Array) -> Basis | None:
    """The step `u` of the model as a basis of one vector; None where it is no good."""
    g, space = state.here.gradient, run.space
    slope, size = (float(part) for part in space.home(g @ u, (u @ u) ** 0.5))
    if not slope > 0 or not size <= LEAP * state.record.step_norm:
        return None
    curvature = np.array([[slope / size**2]])  # u^T P u = u^T g
    V = space.put(space.rows(1), (0, slice(None)), u / size)
    return Basis(V, curvature, np.array([slope / size]), measured=False)
