"""What the statement in docs/convergence.md uses, checked on runs."""

from dataclasses import replace

import numpy as np
import pytest

import ksdmin
from examples.benchmarks.comparison.classic_functions import PROBLEMS
from ksdmin._ksd.presets import DEFAULT
from ksdmin._ksd.steps import krylov
from ksdmin._ksd.steps import search as _search
from ksdmin._problem.arrays import Space

NAMES = [
    *("rosenbrock", "beale", "helical_valley", "box3d", "wood", "biggs_exp6", "watson"),
    *("extended_powell", "penalty1", "trigonometric", "broyden_tridiagonal", "chebyquad"),
]
SUFFICIENT = 0.05  # Armijo's and Wolfe's constants promise 1e-4 (1 - 0.9)
FLOOR = DEFAULT.floor


@pytest.fixture(scope="module", params=NAMES)
def iterations(request):
    """A problem, and (state, basis, H_hat, trial) of every iteration with products of its run."""
    problem, seen, spectra = PROBLEMS[request.param](), [], []
    search, whitening = _search.search, _search.Whitening

    def whitened(H_hat):
        spectra.append(H_hat)
        return whitening(H_hat)

    def searched(turn, kind, basis):
        trial = search(turn, kind, basis)
        kept = replace(basis, V=basis.V.copy())  # the next one has the same room
        seen.append((turn.state, kept, spectra[-1], trial))
        return trial

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_search, "Whitening", whitened)
        patch.setattr(krylov, "search", searched)
        res = ksdmin.minimize(problem.fun, problem.x0, jac=problem.grad, hessp=problem.hessp)
    assert res.success
    return problem, seen


def test_every_space_and_step_is_as_the_statement_says(iterations):
    """f_k - f_(k+1) >= c cos^2 |g|^2 / L, with L from the Hessians that the run came by."""
    problem, seen = iterations
    points = [state.here.x for state, *_ in seen] + [trial.x for *_, trial in seen]
    L = max(np.linalg.norm(problem.hess(x), 2) for x in points)
    for state, basis, H_hat, trial in seen:
        g = state.here.gradient
        u = state.model.preconditioner(Space(state.here.x)).solve(g)
        Q, _ = np.linalg.qr(basis.V.T)
        outside = u - Q @ (Q.T @ u)
        assert np.linalg.norm(outside) <= 1e-8 * np.linalg.norm(u), "u is in the span"
        values = np.linalg.eigvalsh(H_hat)
        assert values[0] >= 0.5 * FLOOR * values[-1] > 0
        d = -basis.V.T @ np.linalg.solve(H_hat, basis.g_bar)
        along = (g @ d) / np.linalg.norm(d)
        assert -along > 1e-8 * np.linalg.norm(g), "the direction is related to the gradient"
        noise = 1e-14 * abs(state.here.value)
        decrease = state.here.value - trial.value
        assert trial.d is None or decrease >= SUFFICIENT * along**2 / L - noise
