"""Algorithm 3, Krylov Subspace Descent: the start and the step.

Letters as in the paper: sets A, B, C; gradient g, preconditioner D, basis V, curvature H_bar
within it, search directions d_prev.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ksdmin._ksd.bfgs import bfgs
from ksdmin._ksd.damping import first_damping
from ksdmin._ksd.judge import FORCING, judge, write_record
from ksdmin._ksd.krylov import Basis, Growth, krylov_basis
from ksdmin._ksd.learning import learn, learns, model_basis
from ksdmin._ksd.pace import Pace
from ksdmin._ksd.precond import preconditioner
from ksdmin._ksd.quasi_newton import QuasiNewton
from ksdmin._ksd.state import Run, State, Trial
from ksdmin._ksd.subspace import SubspaceObjective, Whitening
from ksdmin._problem.arrays import Array
from ksdmin._run.evaluator import Evaluated

UNBOUNDED = -1e20  # times max(1, |f(x0)|): no sensible minimum lies below


def start(run: Run, x0: Array, *, grows: bool = True) -> State:
    """Where Algorithm 3 begins: of very many samples with few, where the sets are to grow."""
    options = run.options
    fewest = 1 if run.evaluator.nonlinear else options.policies.fewest
    most = options.policies.most if grows else None
    sizes = run.evaluator.subsets.sizes(run.parts, fewest, most)
    sets = run.sample(0, sizes)  # Alg. 3, line 3
    if sets is None:
        raise ValueError("subsets: the iterable holds no sets at all")
    here = confirmed(run, run.evaluator.evaluate(x0, sets.A))  # lines 4 and 5
    e_1 = (run.space.unit(0),) if options.policies.first_direction else ()  # line 1
    norm = run.stationarity(here.x, here.gradient)
    record = write_record(run, 0, here, norm, sets)
    return State(
        here=here,
        sets=sets,
        sizes=sizes,
        d_prev=e_1[: run.dims.memory],
        gradient_norm=norm,
        least_gradient=norm,
        forcing=FORCING,
        damping=0.0 if sets.B is here.idx else first_damping(run, here),
        opening=True,
        width=run.dims.krylov_dim,
        model=QuasiNewton(run.dims.pairs),
        trusted=False,
        pace=Pace(record),
        decrease=np.nan,
        stalled=0,
        lowest=UNBOUNDED * max(1.0, abs(here.value)) if np.isfinite(here.value) else -np.inf,
        broken=False,
        last=False,
        warned=False,
        record=record,
    )


def step(run: Run, state: State) -> State:
    """One iteration of Algorithm 3: its lines 6 to 13, then lines 3 to 5 of the next."""
    basis = build_basis(run, state)  # Alg. 3, line 6
    if not basis.finite and basis.dim == 0:
        return replace(state, broken=True)
    trial = search(run, state, basis)  # lines 7 to 12
    sets, state = run.next_sets(state)  # line 3
    there = evaluate(run, trial, state.sets.C, sets.A)  # lines 13, 4 and 5
    before = there.value if trial.d is None else value_on(run, state.here, there.idx)
    return learn(run, state, judge(run, state, trial, before, there, sets), trial)


def build_basis(run: Run, state: State) -> Basis:
    """The subspace of this iteration: Algorithm 2 on the set B, or the model's step alone."""
    here, options, grown = state.here, run.options, run.options.policies.grown
    power = options.diagonal_power
    power = run.evaluator.diagonal_power if power is None else power
    D = preconditioner(run.space, here.diagonal, options.floor, power)
    free = run.movable(here)
    model = state.model if run.box is None else state.model.restricted(free)

    def solve(w: Array) -> Array:
        return free(model.solve(w, D))

    if state.trusted:
        basis = model_basis(run, state, solve(free(here.gradient)))
        if basis is not None:
            return basis
    product = run.evaluator.curvature(here.x, state.sets.B)
    dims = run.dims
    K, memory = (state.width, dims.memory) if state.partial else (dims.whole_dim, dims.whole_memory)

    def enough(growth: Growth) -> bool:
        full = grown is not None and grown(growth, state.forcing)
        return full or run.evaluator.spent() is not None

    return krylov_basis(
        run.space,
        free(here.gradient),
        solve,
        lambda v: free(product(v)),
        [free(d) for d in state.d_prev[:memory]],
        K,
        enough,
        ahead=run.space.remote and (grown is None or state.partial),  # it will hardly end before K
        keep=learns(state),
    )


def search(run: Run, state: State, basis: Basis) -> Trial:
    """The optimum of the objective on C within the subspace."""
    here, policies = state.here, run.options.policies
    if basis.dim == 0:  # no slope on this A, and no previous direction
        return Trial(here.x, None, here.value, here.gradient, 0.0, 0.0, 0, basis)
    floor = max(run.options.floor, run.evaluator.product_error)  # below that, H_bar is noise
    H_hat = policies.spectrum(basis.H_bar, floor)  # Alg. 3, line 7
    if state.damping:
        H_hat = H_hat + state.damping * np.eye(basis.dim)
    whitening = Whitening(H_hat)  # lines 8 and 9
    phi = SubspaceObjective(
        run.evaluator,
        here,
        state.sets.C,
        basis,
        whitening,
        tilted=policies.tilted,
        damping=state.damping,
        box=run.box,
    )
    origin = phi.start()
    found, iterations = bfgs(  # lines 10 and 11
        phi.at,
        origin,
        maxiter=run.inner_maxiter if basis.measured else 1,
        noise=run.evaluator.noise * abs(origin.value),
        slope_noise=slope_noise(run, here, basis) * whitening.gain,
        lowest=state.lowest,
        enough=policies.paid,
        spent=lambda: run.evaluator.spent() is not None,
    )
    moved = found is not origin
    d = found.x - here.x if moved else None  # line 12
    return Trial(
        found.x,
        d,
        found.loss,
        found.whole_gradient,
        promised=origin.value - found.value + phi.damped(found.c),
        modelled=basis.decrease(found.c) if basis.measured else np.nan,
        inner_iterations=iterations,
        basis=basis,
    )


def slope_noise(run: Run, here: Evaluated, basis: Basis) -> float:
    """The error of slopes got by differences: the value's rounding, and the curvature's share."""
    if not run.evaluator.slope_error:
        return 0.0
    scale = abs(here.value) + float(np.abs(basis.H_bar).max())
    return run.evaluator.slope_error * max(1.0, run.space.max_abs(here.x)) * scale


def evaluate(run: Run, trial: Trial, C: Any, A: Any) -> Evaluated:
    """What the next iteration starts from; nothing new where A has just served as C."""
    if C is A and trial.gradient is not None and not run.evaluator.has_diagonal:
        return confirmed(run, Evaluated(trial.x, A, trial.value, trial.gradient))
    return confirmed(run, run.evaluator.evaluate(trial.x, A))


def value_on(run: Run, here: Evaluated, A: Any) -> float:
    """The value before the step, on the samples of the value after it; NaN: not to be compared."""
    if here.idx is A:
        return here.value
    return run.evaluator.value(here.x, A) if run.options.policies.compares else np.nan


def confirmed(run: Run, there: Evaluated) -> Evaluated:
    """A partial set cannot tell convergence: where it seems to, the whole set is asked."""
    subsets = run.evaluator.subsets
    if subsets.full is None or subsets.is_full(there.idx):
        return there
    if run.stationarity(there.x, there.gradient) > run.options.gtol:
        return there
    return run.evaluator.evaluate(there.x, subsets.full)
