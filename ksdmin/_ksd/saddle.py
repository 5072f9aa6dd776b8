"""A vanishing gradient may be that of a saddle point, or a maximum: a look, and a way down.

Problem: at x the gradient vanishes. Find a direction z with z^T H z < 0, if there is one that a few
products show, and a point along it that lies lower.

Algorithm: a short Krylov space from a fixed vector that nothing in the problem prefers, with the
quasi-Newton model as preconditioner: in its measure all curvature seen so far is about one, so that
a negative one stands out after two or three products.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ksdmin._ksd.judge import FORCING, of_trial, write_record
from ksdmin._ksd.krylov import Basis, krylov_basis
from ksdmin._ksd.state import Run, State, Trial
from ksdmin._problem.arrays import Array

PRODUCTS = 3
NEGATIVE = 1e-6  # of the largest curvature seen: less than that below zero is rounding
FIRST = 0.1  # times max(1, |x|): how far the first trial goes
TRIALS = 10
SHORTER = 0.25
SUFFICIENT = 0.1  # of the decrease that the curvature promises


def escape(run: Run, state: State) -> State | None:
    """The state after a step down from a saddle point; None where `state` seems to be none."""
    over = state.record.iteration >= run.maxiter or run.evaluator.spent() is not None
    if not run.options.policies.escapes or state.partial or over or run.box is not None:
        return None
    basis = probe(run, state)
    if basis is None or basis.dim == 0 or not basis.finite:
        return None
    values, E = np.linalg.eigh(basis.H_bar)
    error = max(NEGATIVE, 100 * run.evaluator.product_error)
    if not values[0] < -error * np.abs(values).max():
        return None
    z = run.space.combine(basis.V, E[:, 0])
    uphill = float(state.here.gradient @ z) > 0
    trial = descend(run, state, -z if uphill else z, -float(values[0]), basis)
    return None if trial is None else arrived(run, state, trial)


def probe(run: Run, state: State) -> Basis | None:
    """What a few products show of the curvature where the run has not been; None: nowhere."""
    space, model = run.space, state.model
    anything = space.away(np.random.default_rng(0).standard_normal(space.n))
    unseen, dimensions = model.beyond(space, anything)
    if dimensions == 0:
        return None
    product = run.evaluator.curvature(state.here.x, state.sets.B)
    K = min(PRODUCTS, dimensions)
    return krylov_basis(space, unseen, model.solve, product, (), K, lambda _: False)


def descend(run: Run, state: State, z: Array, curvature: float, basis: Basis) -> Trial | None:
    """A point along z that lies lower; None where rounding hides the decrease."""
    here, evaluator = state.here, run.evaluator
    t = FIRST * max(1.0, run.space.norm(here.x))
    for _ in range(TRIALS):
        promised = curvature * t**2 / 2
        if promised <= evaluator.noise * abs(here.value) or evaluator.spent() is not None:
            return None
        x = here.x + t * z
        value = evaluator.value(x, here.idx)
        if value <= here.value - SUFFICIENT * promised:
            return Trial(x, t * z, value, None, promised, promised, 0, basis)
        t *= SHORTER
    return None


def arrived(run: Run, state: State, trial: Trial) -> State:
    """The state there: everything that was learnt on the way to the saddle point begins anew."""
    there = run.evaluator.evaluate(trial.x, state.here.idx)
    norm, iteration = run.stationarity(there.x, there.gradient), state.record.iteration + 1
    return replace(
        state,
        here=there,
        d_prev=(trial.d, *state.d_prev)[: run.dims.memory],
        gradient_norm=norm,
        least_gradient=norm,
        forcing=FORCING,
        trusted=False,
        decrease=state.here.value - there.value,
        stalled=0,
        record=write_record(run, iteration, there, norm, state.sets, **of_trial(run, trial, True)),
    )
