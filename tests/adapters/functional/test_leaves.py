"""Parameters with leaves that are no floating-point arrays: these are kept as they are."""

from collections import namedtuple
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

import ksdmin
from tests.adapters.functional.backends import CLOSE, Backend, matrix, samples

X, Y = samples("squared-error")
W, SHIFT = np.linspace(-1, 1, 12).reshape(4, 3), np.array([0.1, -0.2, 0.3])


def parameters(backend):
    """A step counter, a mask, a number of layers and a name beside two arrays."""
    return {
        "W": backend.array(W),
        "a count": 3,
        "counter": backend.array(np.array([5, 6])),
        "mask": backend.array(np.array([True, False, True])),
        "name": "spam",
        "nothing": None,
        "shift": backend.array(SHIFT),
        "tanh": backend.np.tanh,
    }


def model(params, inputs):
    assert params["name"] == "spam"
    assert params["nothing"] is None
    assert type(params["a count"]) is int
    shift = params["counter"][0] * params["mask"] * params["shift"] / params["a count"]
    return params["tanh"](inputs @ params["W"]) + shift


def plain(params, inputs):
    shift = 5 * np.array([1.0, 0.0, 1.0]) * params["shift"] / 3
    return params["tanh"](inputs @ params["W"]) + shift


def test_other_leaves_are_kept(backend):
    params = parameters(backend)
    arrays = {"W": params["W"], "shift": params["shift"]}
    problem = backend.make(model, "squared-error", (X, Y), params=params)
    expected = backend.make(
        lambda p, inputs: plain({**p, "tanh": backend.np.tanh}, inputs),
        "squared-error", (X, Y), params=arrays,
    )  # fmt: skip
    assert problem.x0.shape == (15,)
    for one, other in zip(
        problem.value_and_gradient(problem.x0, diagonal=True),
        expected.value_and_gradient(expected.x0, diagonal=True),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, **CLOSE)
    np.testing.assert_allclose(matrix(backend, problem), matrix(backend, expected), **CLOSE)


def test_unflatten_puts_them_back(backend):
    params = parameters(backend)
    problem = backend.make(model, "squared-error", (X, Y), params=params)
    found = problem.unflatten(2 * problem.x0)
    np.testing.assert_allclose(found["W"], 2 * W)
    np.testing.assert_allclose(found["shift"], 2 * SHIFT)
    for name in set(params) - {"W", "shift"}:
        assert found[name] is params[name], name


def entries(tree):
    """The leaves of dicts and lists."""
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else None
    return [tree] if parts is None else [leaf for part in parts for leaf in entries(part)]


@pytest.mark.parametrize("start", [3, [1, 2], np.array([1, 2]), {"a": 1, "b": [True]}])
def test_whole_numbers_alone_are_varied(backend, start):
    def fun(t):
        return sum(backend.np.sum((leaf - 0.5) ** 2) for leaf in entries(t))

    problem = backend.make(fun, x0=start)
    assert problem.x0.dtype == np.float64
    np.testing.assert_allclose(ksdmin.minimize(problem).x, 0.5, atol=1e-6)


def test_nothing_to_vary(backend):
    with pytest.raises(ValueError, match="nothing to minimise over"):
        backend.make(lambda t: 1.0, x0={"name": "spam"})
    with pytest.raises(TypeError, match="has dtype complex128"):
        backend.make(lambda t: 1.0, x0={"a": backend.array(SHIFT * 1j), "n": 2})


# Modules of jax: nodes of their own, with settings and functions among their leaves


@dataclass
class Layer:
    """Like a module of equinox: all fields but `size` are leaves."""

    weight: Any
    activation: Any
    rate: float
    steps: int
    key: Any
    size: int

    def __call__(self, inputs):
        assert isinstance(self.rate, float)
        assert isinstance(self.steps, int)
        return self.activation(inputs @ self.weight) * self.rate * self.steps / self.size


@cache  # a class is registered once
def registered():
    import jax

    leaves = ["weight", "activation", "rate", "steps", "key"]
    jax.tree_util.register_dataclass(Layer, data_fields=leaves, meta_fields=["size"])
    return Layer


@pytest.fixture
def jax_backend(x64):
    return Backend("jax", pytest.importorskip("jax").numpy)


def layer():
    import jax

    given = {"weight": jax.numpy.asarray(W), "activation": jax.numpy.tanh, "rate": 0.5, "steps": 4}
    return registered()(**given, key=jax.random.key(3), size=2)


def test_a_module(jax_backend):
    module = {"layer": layer(), "shift": jax_backend.array(SHIFT)}
    call = lambda p, inputs: p["layer"](inputs) + p["shift"]  # noqa: E731
    problem = jax_backend.make(call, "squared-error", (X, Y), params=module, l2={"layer": 0.1})
    usual = jax_backend.make(
        lambda p, inputs: jax_backend.np.tanh(inputs @ p["W"]) + p["b"],
        "squared-error", (X, Y), params={"W": W, "b": SHIFT}, l2={"W": 0.1},
    )  # fmt: skip
    np.testing.assert_allclose(problem.x0, usual.x0)
    assert problem.value(problem.x0) == pytest.approx(usual.value(usual.x0))
    np.testing.assert_allclose(matrix(jax_backend, problem), matrix(jax_backend, usual), **CLOSE)
    res = ksdmin.minimize(problem, options={"maxiter": 3})
    assert res.fun < problem.value(problem.x0)
    found = problem.unflatten(res.x)["layer"]
    assert (found.rate, found.steps, found.size) == (0.5, 4, 2)
    assert found.key is module["layer"].key


def test_equinox(jax_backend):
    import jax

    eqx = pytest.importorskip("equinox")
    net = eqx.nn.MLP(4, 3, 5, 1, activation=jax.nn.softplus, key=jax.random.key(0))
    net = jax.tree_util.tree_map(lambda a: a.astype(float) if eqx.is_array(a) else a, net)
    stack = (net, eqx.nn.Dropout(0.5, inference=True))
    apply = lambda p, inputs: p[1](jax.vmap(p[0])(inputs))  # noqa: E731
    problem = jax_backend.make(apply, "squared-error", (X, Y), params=stack)
    assert problem.x0.shape == (4 * 5 + 5 + 5 * 3 + 3,)
    right = np.sum((np.asarray(jax.vmap(net)(X)) - Y) ** 2, 1).mean()
    assert problem.value(problem.x0) == pytest.approx(right)
    found, dropout = problem.unflatten(problem.x0)
    assert found.activation is net.activation
    assert dropout == stack[1]
    res = ksdmin.minimize(problem, options={"maxiter": 3})
    assert res.fun < right


def test_flax(jax_backend):
    import jax

    linen = pytest.importorskip("flax.linen")
    frozen = pytest.importorskip("flax.core").freeze
    net = linen.Sequential([linen.Dense(5), linen.tanh, linen.Dense(3)])
    start = net.init(jax.random.key(0), X[:1])
    start = jax.tree_util.tree_map(lambda a: a.astype(float), start)
    values = [
        problem.value(problem.x0)
        for params in (start, frozen(start))
        for problem in [
            jax_backend.make(net.apply, "squared-error", (X, Y), params=params, l2=l2_of_kernels())
        ]
    ]
    right = np.sum((np.asarray(net.apply(start, X)) - Y) ** 2, 1).mean()
    kernel = start["params"]["layers_0"]["kernel"]
    assert values == [pytest.approx(right + 0.25 * float((kernel**2).sum()))] * 2


def l2_of_kernels():
    return {"params": {"layers_0": {"kernel": 0.5}}}


def test_namedtuples_with_autograd():
    anp = pytest.importorskip("autograd.numpy")
    Line = namedtuple("Line", ["slope", "shift"])
    Points = namedtuple("Points", ["x", "y"])
    x = np.linspace(0, 1, 9)

    def r(line, points):
        return points.x * line.slope - points.y + anp.array(1.0) * line.shift

    problem = ksdmin.from_autograd(
        residuals=[(r, Points(x, 2 * x + 1))], params=Line(np.zeros(1), np.zeros(1))
    )
    found = problem.unflatten(ksdmin.minimize(problem, rng=0).x)
    assert isinstance(found, Line)
    np.testing.assert_allclose([found.slope[0], found.shift[0]], [2, 1], atol=1e-4)
