"""A step depends on the state alone: taken again, it gives the same, and changes nothing."""

from itertools import cycle

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess, rosen_hess_prod
from scipy.special import expit

import ksdmin
from ksdmin import _solver
from tests.ksd.snapshots import snapshot
from tests.ksd.twice import Twice
from tests.linear_models import logistic
from tests.nets import tanh_net
from tests.run import runs

M, N, L2 = 2000, 6, 1e-3
RNG = np.random.default_rng(0)
X = RNG.standard_normal((M, N)) * np.geomspace(1, 10, N)
Y = np.where(RNG.random(M) < expit(X @ np.ones(N) / 4), 1.0, -1.0)
WHOLE = slice(None)
EXACT = {"jac": rosen_der, "hessp": rosen_hess_prod}
HESSIAN = {"jac": rosen_der, "hess": rosen_hess}
methods = pytest.mark.parametrize("method", ["ksd", "hf"])


# Plain functions


SHORT = {"options": {"maxiter": 15}}


@methods
@pytest.mark.parametrize("given", [EXACT, HESSIAN, SHORT, {"jac": rosen_der, **SHORT}])
def test_products_and_differences(replayed, method, given):
    """By differences, it remembers the last point that it was asked at: that saves evaluations."""
    replayed(rosen, np.full(4, -1.2), method=method, **given)


def test_bounds(replayed):
    bounds = [(None, 0.5), (-2.0, None), (-1.0, 0.3), (None, None)]
    replayed(rosen, np.zeros(4), **EXACT, bounds=bounds)
    replayed(rosen, np.zeros(4), bounds=bounds, options={"maxiter": 10})


def test_the_paper(replayed):
    replayed(rosen, np.full(5, -1.2), **EXACT, options=ksdmin.PAPER)


# Sums


def sum_of_losses(subsets, **more):
    return {**logistic(X, Y, L2), "x0": np.zeros(N), "subsets": subsets, "rng": 0, **more}


def triples(count):
    for start in range(count):
        yield WHOLE, np.arange(start, M, 5), np.arange(start + 1, M, 5)


@pytest.mark.parametrize("endless", [False, True])
def test_own_sets_of_an_iterable(replayed, endless):
    """A list begins anew in each run; it ends, or goes on for ever."""

    class Sets:
        def __iter__(self):
            return cycle(triples(4)) if endless else triples(6)

    subsets = ksdmin.Subsets(Sets(), full=WHOLE)
    states = replayed(**sum_of_losses(subsets, options={"maxiter": 8, "gtol": 1e-12}))
    assert states[-1].sampling.exhausted is not endless


@methods
def test_a_generator_is_drawn_from_once_a_step(monkeypatch, method):
    """It cannot begin anew: a step that is taken again finds the sets that it drew."""
    drawn, own = [], _solver.METHODS[method]
    twice = Twice(own.step)

    def generator():
        for sets in triples(6):
            drawn.append(sets)
            yield sets

    with monkeypatch.context() as patch:
        patch.setitem(_solver.METHODS, method, own._replace(step=twice))
        subsets = ksdmin.Subsets(generator(), full=WHOLE)
        res = ksdmin.minimize(**sum_of_losses(subsets, method=method, options={"gtol": 1e-12}))
    twice.take_again()
    assert len(drawn) == len(twice.states) == res.nit == 6
    again = ksdmin.Subsets(list(triples(6)), full=WHOLE)
    plain = ksdmin.minimize(**sum_of_losses(again, method=method, options={"gtol": 1e-12}))
    assert snapshot(res.x) == snapshot(plain.x)


@methods
def test_own_sets_of_a_callable(replayed, method):
    def draw(iteration, rng):
        A, B, C = (rng.choice(M, size, replace=False) for size in (1000, 200, 200))
        return A, B, C

    subsets = ksdmin.Subsets(draw, full=WHOLE)
    replayed(**sum_of_losses(subsets, method=method, options={"maxiter": 6}))


@pytest.mark.parametrize("run", [runs.epochs, runs.blocks_of_epochs])
def test_points_that_are_drawn_anew(replayed, run):
    replayed(**run())


# Arithmetic that gets finer


def net(precision):
    torch = pytest.importorskip("torch")
    inputs, targets = torch.as_tensor(X[:300], dtype=torch.float32), torch.as_tensor(Y[:300] > 0)
    data, loss = (inputs, targets.long()), torch.nn.CrossEntropyLoss()
    return ksdmin.from_torch(tanh_net(N, 2, 2), loss, data, l2=0.1, precision=precision)


def test_a_net_whose_arithmetic_gets_finer(replayed):
    states = replayed(net("high"), rng=0, options={"gtol": 1e-6, "maxiter": 40})
    noises = [state.ledger.problem.traits.noise or 0.0 for state in states]
    assert noises[0] > 0.0 == noises[-1]  # float64 in the end
    assert states[0].here.x.dtype != states[-1].here.x.dtype


# A saddle point


def test_the_way_down_from_a_saddle_point(monkeypatch):
    """The start is one: the first thing a run does is to look for a way down."""
    seen, own = [], _solver.METHODS["ksd"]

    def escaping(run, state):
        before = snapshot(state)
        (first, down), (again, likewise) = own.escape(run, state), own.escape(run, state)
        assert snapshot(state) == before
        assert down is likewise
        assert snapshot(first) == snapshot(again)
        seen.append(down)
        return first, down

    monkeypatch.setitem(_solver.METHODS, "ksd", own._replace(escape=escaping))
    res = ksdmin.minimize(
        lambda x: np.sum((x**2 - 1) ** 2),
        np.zeros(3),
        jac=lambda x: 4 * x * (x**2 - 1),
        hessp=lambda x, p: (12 * x**2 - 4) * p,
    )
    assert res.success
    assert np.abs(np.abs(res.x) - 1).max() < 1e-4
    assert seen[0] is True
    assert seen[-1] is False


def test_snapshots_tell_states_apart():
    """What the tests above rest on."""
    assert snapshot(np.array([0.0])) != snapshot(np.array([-0.0]))
    assert snapshot(float("nan")) == snapshot(float("nan"))
    assert snapshot((1.0, "a")) != snapshot((1.0, "b"))
    assert snapshot(ksdmin.Traits(noise=1e-3)) != snapshot(ksdmin.Traits(noise=1e-4))
