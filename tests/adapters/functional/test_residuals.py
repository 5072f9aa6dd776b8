"""Blocks of squared residuals in jax and autograd, against each other and dense matrices."""

import numpy as np
import pytest

import ksdmin

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 3))
DATA = {"x": X, "y": np.sin(X[:, :2])}
FEW = RNG.standard_normal((4, 3))
START = {"W": RNG.standard_normal((3, 4)) / 2, "v": RNG.standard_normal((4, 2)) / 2}
WHOLE = slice(None)


def blocks(xp):
    def net(params, x):
        return xp.tanh(x @ params["W"]) @ params["v"]

    def fit(params, batch):
        return net(params, batch["x"]) - batch["y"]

    def sums(params, x):
        return xp.sum(net(params, x), axis=1) - 1.0

    def smallness(params):
        return 0.1 * params["v"]

    return [(fit, DATA), (sums, FEW, 3.0), (smallness, None, 0.5)]


def residuals(x, parts=(WHOLE, WHOLE)):
    """All of them, each times the square root of its factor in the objective: numpy."""
    params = {"W": x[:12].reshape(3, 4), "v": x[12:].reshape(4, 2)}
    at = {key: value[parts[0]] for key, value in DATA.items()}, FEW[parts[1]]
    (fit, *_), (sums, *_), (smallness, *_) = blocks(np)
    vectors = fit(params, at[0]), sums(params, at[1]), smallness(params)
    factors = 1.0, 3.0, 0.5
    return np.concatenate(
        [(f / r.size) ** 0.5 * r.ravel() for r, f in zip(vectors, factors, strict=True)]
    )


def jacobian(x, parts):
    return np.stack([residuals(x + 1e-30j * e, parts).imag / 1e-30 for e in np.eye(len(x))], 1)


def make(backend, given=None, **options):
    params = {name: backend.array(part) for name, part in START.items()}
    return backend.make(None, residuals=given or blocks(backend.np), params=params, **options)


PARTS = {
    "whole": (WHOLE, (WHOLE, WHOLE)),
    "part": (np.array([0, 3, 11, 13, 14, 16]), ([0, 3, 11], [1, 2])),
}


@pytest.mark.parametrize("part", PARTS)
def test_values_gradients_and_products(backend, part):
    problem, (idx, parts) = make(backend, l2=0.2), PARTS[part]
    assert problem.subsets.n == 12 + 4 + 1
    x = problem.x0 + 0.1
    host = np.asarray(x)
    r, J = residuals(host, parts), jacobian(host, parts)
    value, g = problem.value_and_gradient(x, idx)
    assert value == problem.value(x, idx) == pytest.approx(r @ r + 0.1 * host @ host)
    assert np.asarray(g) == pytest.approx(2 * J.T @ r + 0.2 * host, abs=1e-9)
    v = backend.array(np.linspace(-1, 1, 20))
    expected = 2 * J.T @ (J @ np.asarray(v)) + 0.2 * np.asarray(v)
    assert np.asarray(problem.curvature(x, idx)(v)) == pytest.approx(expected, abs=1e-9)


def test_the_hessian(backend):
    problem = make(backend, curvature="hessian")
    x, v = problem.x0 + 0.1, backend.array(np.linspace(-1, 1, 20))
    ahead, behind = (np.asarray(problem.value_and_gradient(x + h * v)[1]) for h in (1e-5, -1e-5))
    difference = (ahead - behind) / 2e-5
    assert np.asarray(problem.curvature(x)(v)) == pytest.approx(difference, abs=1e-6)


def test_the_diagonal_of_the_blocks(backend):
    problem = make(backend, l2=0.2)
    D = np.asarray(problem.value_and_gradient(problem.x0, diagonal=True)[2])
    assert D.shape == (20,)
    assert (D > 0.2).all()
    assert problem.traits.diagonal_power == 0.75


@pytest.mark.parametrize("curvature", [None, "hessian", "fisher", "empirical-fisher"])
def test_a_run_goes_down(backend, curvature):
    problem = make(backend, curvature=curvature)
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 3})
    assert res.fun < 0.9 * res.history[0].value
    found = problem.unflatten(res.x)
    assert found["W"].shape == (3, 4)


def test_a_sampled_run_goes_down(backend):
    problem = make(backend)
    subsets = ksdmin.Subsets(17, 1.0, 0.5, 0.5)
    res = ksdmin.minimize(problem, subsets=subsets, rng=0, options={"maxiter": 10})
    assert res.fun < 0.5 * res.history[0].value


def test_wrong_blocks(backend):
    xp = backend.np
    with pytest.raises(ValueError, match="r returned one number"):
        make(backend, [(lambda p, x: xp.mean(x @ p["W"]), X)])
    with pytest.raises(ValueError, match="it must return one row per sample"):
        make(backend, [(lambda p, x: (x @ p["W"]).T, X)])
    with pytest.raises(TypeError, match="r returned tuple: expected one array"):
        make(backend, [(lambda p, x: (x, x), X)])
    with pytest.raises(TypeError, match="expected arrays with one row per sample"):
        make(backend, [(lambda p, x: x, 3.0)])


@pytest.mark.parametrize("data", [None, X[:1], X], ids=["whole", "one sample", "samples"])
def test_random_residuals_are_refused(data):
    rng = np.random.default_rng(0)

    def exact(params):
        return params["W"]

    def noisy(params, batch=FEW):
        return batch @ params["W"] + 0.1 * rng.standard_normal(4)

    with pytest.raises(ValueError, match="is not deterministic") as caught:
        ksdmin.from_autograd(residuals=[(exact, None), (noisy, data)], params=START)
    assert "in block 1 of residuals=" in caught.value.__notes__


def test_wrong_arguments(backend):
    given, adapter = blocks(backend.np), backend.make
    with pytest.raises(TypeError, match="model= goes with a model or a plain function"):
        adapter(lambda params: 0.0, residuals=given, params=START)
    with pytest.raises(TypeError, match="data= goes with"):
        adapter(None, data=(X, X), residuals=given, params=START)
    with pytest.raises(TypeError, match="params= is missing: a list of residuals"):
        adapter(None, residuals=given)
    with pytest.raises(TypeError, match="model: expected a function, not NoneType"):
        adapter(None, params=START)
    with pytest.raises(TypeError, match=r"no load: unflatten\(x\) gives"):
        make(backend).load(np.zeros(20))
