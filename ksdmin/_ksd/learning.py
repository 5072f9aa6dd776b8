"""How a run teaches its quasi-Newton model, and when it takes the model's word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ksdmin._ksd.judge import LEAST_FORCING, model_error
from ksdmin._ksd.krylov import Basis
from ksdmin._ksd.pace import MOST, Pace
from ksdmin._ksd.state import Run, State, Trial
from ksdmin._problem.arrays import Array

CLEAR = 0.6  # of the digits that a value is sure of: gains beyond them are left to products
LEAP = 10  # times the last step: so far a step may go that no product has confirmed


def learns(state: State) -> bool:
    """Whether there is a model to teach: gradients and products of one and the same function."""
    return state.model.capacity > 0 and not state.partial


def learn(run: Run, before: State, after: State, trial: Trial) -> State:
    """What the iteration tells the model, and whether the next step may rest on it alone.

    It may after a step with products that gained something, unless the function is quadratic; and
    then as long as the gradient falls or the gain is worth the work.
    """
    if not learns(before):
        return replace(after, pace=Pace(after.record, worth=MOST))  # many samples: products pay
    model, pace, old, new = before.model, before.pace, before.here, after.here
    measured, gain = trial.basis.measured, old.value - new.value
    if measured and trial.basis.dim:
        model = model.with_basis(run.space, trial.basis)
    taken = new.x is not old.x and new.idx is old.idx
    if taken:
        s, y = new.x - old.x, new.gradient - old.gradient
        if measured:
            model = model.with_pair(s, y)
        else:
            model = model.with_own_step(s, y, slope=float(s @ old.gradient))
    if measured:
        pace = pace.after(before.record, after.record)
        pays = model_error(gain, trial.modelled) > LEAST_FORCING  # no quadratic: products solve it
    else:
        falls = after.gradient_norm <= before.gradient_norm
        pays = falls or pace.paid(before.record, after.record)
    clear = gain > run.evaluator.noise**CLEAR * abs(old.value)
    return replace(after, model=model, pace=pace, trusted=taken and clear and pays)


def model_basis(run: Run, state: State, u: Array) -> Basis | None:
    """The step `u` of the model as a basis of one vector; None where it is no good."""
    g, space = state.here.gradient, run.space
    slope, size = (float(part) for part in space.home(g @ u, (u @ u) ** 0.5))
    if not slope > 0 or not size <= LEAP * state.record.step_norm:
        return None
    curvature = np.array([[slope / size**2]])  # u^T P u = u^T g
    V = space.put(space.rows(1), (0, slice(None)), u / size)
    return Basis(V, curvature, np.array([slope / size]), measured=False)
