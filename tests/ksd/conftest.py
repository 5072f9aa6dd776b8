"""What the tests of the method share."""

import pytest

import ksdmin
from ksdmin import _solver
from tests.ksd.snapshots import snapshot
from tests.ksd.twice import Twice


@pytest.fixture
def replayed(monkeypatch):
    """Runs `minimize` once as it is and once with every step taken twice; the states of that."""

    def run(*args, method="ksd", **kwargs):
        plain = ksdmin.minimize(*args, method=method, **kwargs)
        own = _solver.METHODS[method]
        twice = Twice(own.step)
        with monkeypatch.context() as patch:
            patch.setitem(_solver.METHODS, method, own._replace(step=twice))
            res = ksdmin.minimize(*args, method=method, **kwargs)
        twice.take_again()
        assert snapshot(list(res.history)) == snapshot(list(plain.history))
        assert snapshot(res.x) == snapshot(plain.x)
        assert (res.nfev, res.njev, res.nhev) == (plain.nfev, plain.njev, plain.nhev)
        assert len(twice.states) >= 3
        return twice.states

    return run
