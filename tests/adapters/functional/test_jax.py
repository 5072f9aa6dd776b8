"""What is particular to from_jax; the numbers are tested in test_numbers.py."""

import re
import sys

import numpy as np
import pytest

import ksdmin
from tests.adapters.functional.backends import Backend, parameters, samples

jax = pytest.importorskip("jax")
jnp = jax.numpy
CLOSE = {"rtol": 1e-10, "atol": 1e-12}
rng = np.random.default_rng(0)
X, Y = rng.standard_normal((20, 4)), rng.standard_normal((20, 3))
W, V = rng.standard_normal((4, 3)), rng.standard_normal((3, 3))


def norm(x):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def scanned(p, X):
    """A recurrent net over the columns."""
    step = jax.lax.scan(
        lambda h, x: (jnp.tanh(h @ p[0] + x[:, None]), None), p[1] + 0 * X[:, :3], X.T
    )
    return step[0]


def convolved(p, X):
    return jnp.tanh(jax.vmap(lambda x: jnp.convolve(x, p[0], "same"))(X))[:, :3]


# name: parameters, model
MODELS = {
    "layers": ([W, V[0], V], lambda p, X: jnp.tanh(X @ p[0] + p[1]) @ p[2]),
    "compiled": ([W, V], lambda p, X: jax.jit(lambda a: jnp.tanh(a @ p[0]))(X) @ p[1]),
    "einsum": ([W], lambda p, X: jnp.einsum("ij,jk->ik", X, p[0])),
    "transposed": ([W.T], lambda p, X: jnp.tanh(X @ p[0].T)),
    "layer norm": ([W, V[0], V[1]], lambda p, X: norm(X @ p[0]) * p[1] + p[2]),
    "tied": ([V], lambda p, X: jnp.tanh(X[:, :3] @ p[0]) @ p[0]),
    "recurrent": ([V, V[0]], scanned),
    "convolution": ([V[0]], convolved),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name not in ("layers", "tied")))
        for name in MODELS
    ],
)
def test_the_diagonal(x64, name):
    params, model = MODELS[name]
    problem = ksdmin.from_jax(model, "squared-error", (X, Y), params=params, chunk_size=8)

    def loss(x, inputs, targets):
        return jnp.sum((model(problem.unflatten(x), inputs[None])[0] - targets) ** 2)

    G = jax.jit(jax.vmap(jax.grad(loss), (None, 0, 0)))(problem.x0, X, Y)
    _, g, D = problem.value_and_gradient(problem.x0, diagonal=True)
    np.testing.assert_allclose(g, G.mean(0), **CLOSE)
    np.testing.assert_allclose(D, (G**2).mean(0), **CLOSE)


def test_a_derivative_of_ones_own(x64):
    """A function with its own rule backward has none forward; products do without."""

    @jax.custom_vjp
    def square(x):
        return x**2

    square.defvjp(lambda x: (x**2, x), lambda x, u: (2 * x * u,))
    own, plain = (
        ksdmin.from_jax(lambda p, X, f=f: f(X @ p), "squared-error", (X, Y), params=W)
        for f in (square, jnp.square)
    )
    v = jnp.arange(12.0)
    np.testing.assert_allclose(own.curvature(own.x0)(v), plain.curvature(plain.x0)(v), **CLOSE)


def test_sets_of_many_sizes_are_compiled_a_few_times(x32):
    traced = []

    def model(params, inputs):
        traced.append(inputs.shape)
        return inputs @ params

    n = 300
    data = np.ones((n, 2), "f"), np.ones((n, 1), "f")
    problem = ksdmin.from_jax(model, "squared-error", data, params=np.zeros((2, 1), "f"))
    traced.clear()
    for size in range(1, n, 23):
        assert problem.value(problem.x0, np.arange(size)) == pytest.approx(1.0)
    assert len(traced) <= 9
    traced.clear()
    for size in range(1, n, 19):
        problem.value(problem.x0, np.arange(size))
    assert len(traced) <= 1


def test_finer_arithmetic_has_values_in_float32_and_the_same_products(x32):
    backend, data = Backend("jax", jnp), samples("squared-error", dtype="float32")
    coarse = backend.make(
        backend.mlp, "squared-error", data, params=parameters("float32"), precision="high"
    )
    finer = coarse.in_finer_arithmetic()

    def arithmetic(problem, kind):
        chunk = next(problem._sums._chunks(slice(None), 64))
        text = problem._sums._compiled[kind].lower(problem.x0, chunk).as_text()
        return set(re.findall(r"precision = \[(\w+), (\w+)\]", text))

    for kind in ("value", "gradient", "diagonal"):
        assert arithmetic(coarse, kind) == {("HIGH", "HIGH")}
        assert arithmetic(finer, kind) == {("HIGHEST", "HIGHEST")}
    assert finer._sums._multiply is coarse._sums._multiply
    assert (coarse.traits.noise, finer.traits.noise) == (1e-5, 1e-7)
    assert finer.in_finer_arithmetic() is None


@pytest.mark.filterwarnings("ignore:The loss, or a block")  # the inputs are zeros
def test_float32_sums_over_many_samples(x32):
    """The losses are added on the device in blocks, and the blocks on the host in float64."""
    n = 200_000
    y = np.random.default_rng(0).random((n, 1)).astype("f") + 1
    problem = ksdmin.from_jax(
        lambda p, X: X @ p,
        "squared-error",
        (np.zeros((n, 1), "f"), y),
        params=np.zeros((1, 1), "f"),
    )
    exact = np.mean(y.astype(float) ** 2)
    assert problem.value(problem.x0) == pytest.approx(exact, rel=1e-7)


def test_precision_by_name():
    with pytest.raises(ValueError, match="precision='low': expected one of"):
        ksdmin.from_jax(lambda x: x @ x, x0=jnp.zeros(2), precision="low")


def test_another_missing_package_is_not_blamed_on_jax(monkeypatch):
    for name in list(sys.modules):
        if name.startswith("ksdmin._adapters.functional.jax"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ksdmin._adapters.functional.jax_chunks", None)
    with pytest.raises(ModuleNotFoundError, match="jax_chunks"):
        ksdmin.from_jax(lambda x: x @ x, x0=np.zeros(2))
