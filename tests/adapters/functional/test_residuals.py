"""Blocks of squared residuals in jax and autograd; their numbers are tested in test_parity.py."""

import numpy as np
import pytest

import ksdmin
from tests.adapters.test_parity import PARAMS, block_problem

X = np.random.default_rng(0).standard_normal((12, 3))


def make(backend, given):
    return backend.make(None, residuals=given, params=PARAMS)


def test_a_run_goes_down(backend):
    problem = block_problem(backend.name, curvature="fisher")  # the others: test_parity.py
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 3})
    assert res.fun < 0.9 * res.history[0].value
    found = problem.unflatten(res.x)
    assert found["W"].shape == (3, 4)


def test_a_penalty_by_name_has_the_steps_of_a_number(backend):
    runs = [
        ksdmin.minimize(block_problem(backend.name, l2=l2), rng=0, options={"maxiter": 3})
        for l2 in (1e-3, dict.fromkeys(PARAMS, 1e-3))
    ]
    assert runs[0].kinds == runs[1].kinds
    assert runs[1].fun == pytest.approx(runs[0].fun, rel=1e-6)


def test_wrong_blocks(backend):
    xp = backend.np
    with pytest.raises(ValueError, match="r returned one number"):
        make(backend, [(lambda p, x: xp.mean(x @ p["W"]), X)])
    with pytest.raises(ValueError, match="it must return one row per sample"):
        make(backend, [(lambda p, x: (x @ p["W"]).T, X)])
    with pytest.raises(TypeError, match=r"r returned tuple: expected one array .*columns"):
        make(backend, [(lambda p, x: (x, x), X)])
    with pytest.raises(TypeError, match="expected arrays with one row per sample"):
        make(backend, [(lambda p, x: x, 3.0)])


@pytest.mark.parametrize("data", [None, X[:1], X], ids=["whole", "one sample", "samples"])
def test_random_residuals_are_refused(data):
    rng = np.random.default_rng(0)

    def exact(params):
        return params["W"]

    def noisy(params, batch=X[:4]):
        return batch @ params["W"] + 0.1 * rng.standard_normal(4)

    with pytest.raises(ValueError, match="is not deterministic") as caught:
        ksdmin.from_autograd(residuals=[(exact, None), (noisy, data)], params=PARAMS)
    assert "in block 1 of residuals=" in caught.value.__notes__


def test_wrong_arguments(backend):
    given, adapter = [(lambda p, x: x @ p["W"], X)], backend.make
    with pytest.raises(TypeError, match="model= goes with a model or a plain function"):
        adapter(lambda params: 0.0, residuals=given, params=PARAMS)
    with pytest.raises(TypeError, match="data= goes with"):
        adapter(None, data=(X, X), residuals=given, params=PARAMS)
    with pytest.raises(TypeError, match="params= is missing: a list of residuals"):
        adapter(None, residuals=given)
    with pytest.raises(TypeError, match="model: expected a function, not NoneType"):
        adapter(None, params=PARAMS)
    with pytest.raises(TypeError, match=r"no load: unflatten\(x\) gives"):
        make(backend, given).load(np.zeros(20))
