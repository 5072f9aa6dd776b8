"""Functions of jax, many as jaxopt's users have them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksdmin
from tests.zoo.registry import Functional, entry

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape)


def squared(z, y):
    return jnp.sum((z - y) ** 2, axis=1)


def entropy(z, y):
    return jax.nn.logsumexp(z, axis=1) - jnp.take_along_axis(z, y[:, None], 1)[:, 0]


def of_jax(*args, **kwargs):
    return Functional(ksdmin.from_jax, *args, **kwargs)


@entry("jax", pytest.mark.slow)  # tests/adapters/functional has its like
def jax_mlp():
    def mlp(p, x):
        return jnp.tanh(x @ p["W"] + p["b"]) @ p["V"]

    params = {"W": normal(2, 4), "b": normal(4), "V": normal(4, 3)}
    data = normal(20, 2), RNG.integers(0, 3, 20)
    return of_jax(mlp, params, "softmax-cross-entropy", data, entropy)


@entry("jax", pytest.mark.slow)  # tests/adapters/functional has its like
def jax_ridge():
    X, y = normal(20, 4), normal(20)

    def ridge(w):
        return jnp.mean((X @ w - y) ** 2) / 2 + 0.1 * jnp.sum(w**2)

    return of_jax(ridge, np.ones(4))


@entry("jax", pytest.mark.slow)  # tests/adapters/functional has its like
def jax_binary_logistic():
    X, y = normal(20, 3), RNG.integers(0, 2, 20)

    def fun(p):
        z = X @ p["w"] + p["b"]
        return jnp.mean(jax.nn.softplus(z) - y * z) + 0.01 * jnp.sum(p["w"] ** 2)

    return of_jax(fun, {"w": np.zeros(3), "b": np.zeros(())})


@entry("jax", pytest.mark.slow)  # tests/adapters/functional has its like
def jax_multiclass_logistic():
    X, y = normal(20, 3), RNG.integers(0, 3, 20)

    def fun(W):
        return jnp.mean(entropy(X @ W, y)) + 0.01 * jnp.sum(W**2)

    return of_jax(fun, np.zeros((3, 3)))


@entry("jax")
def jax_scan():
    """A recurrent net by lax.scan."""

    def rnn(p, x):
        def step(h, inputs):
            h = jnp.tanh(inputs @ p["in"] + h @ p["hidden"])
            return h, None

        h, _ = jax.lax.scan(step, jnp.zeros((x.shape[0], 3)), jnp.swapaxes(x, 0, 1))
        return h @ p["out"]

    params = {"in": normal(2, 3), "hidden": normal(3, 3) / 2, "out": normal(3, 1)}
    return of_jax(rnn, params, "squared-error", (normal(10, 4, 2), normal(10, 1)), squared)


@jax.custom_jvp
def smooth(x):
    return jnp.logaddexp(x, 0.0)


@smooth.defjvp
def _(primals, tangents):
    return smooth(primals[0]), jax.nn.sigmoid(primals[0]) * tangents[0]


@entry("jax")
def jax_custom_jvp():
    def model(p, x):
        return smooth(x @ p["W"]) @ p["v"]

    params = {"W": normal(2, 4), "v": normal(4, 1)}
    return of_jax(model, params, "squared-error", (normal(15, 2), normal(15, 1)), squared)


@jax.custom_vjp
def bump(x):
    return jnp.exp(-(x**2))


bump.defvjp(lambda x: (bump(x), x), lambda x, g: (-2 * x * jnp.exp(-(x**2)) * g,))


@entry("jax")
def jax_custom_vjp():
    """Reverse mode only: its own derivative has no forward mode."""

    def model(p, x):
        return bump(x @ p["W"]) @ p["v"]

    params = {"W": normal(2, 4), "v": normal(4, 1)}
    return of_jax(model, params, "squared-error", (normal(15, 2), normal(15, 1)), squared)


@entry("jax")
def jax_custom_vjp_in_a_function():
    return of_jax(lambda x: jnp.sum(bump(x - 1)) + jnp.sum(x**2), np.full(3, 0.3))


@entry("jax", pytest.mark.slow)  # tests/adapters/functional has its like
def jax_loss_of_ones_own():
    def loss(z, y):
        return jnp.sum(jnp.sqrt(1 + (z - y) ** 2), axis=1)

    def model(p, x):
        return jnp.sin(x @ p[0]) @ p[1]

    return of_jax(model, (normal(2, 3), normal(3, 2)), loss, (normal(15, 2), normal(15, 2)))


@entry("jax")
def jax_convolution():
    def model(p, x):
        z = jax.lax.conv_general_dilated(x[:, None], p["filter"], (1,), "VALID")
        return jnp.tanh(z).reshape(len(x), -1) @ p["head"]

    params = {"filter": normal(2, 1, 3), "head": normal(8, 1)}
    return of_jax(model, params, "squared-error", (normal(12, 6), normal(12, 1)), squared)


@entry("jax")
def jax_physics_informed():
    """Derivatives in the inputs: grad and vmap in the model."""

    def u(p, t):
        return jnp.tanh(t * p["w"] + p["b"]) @ p["v"]

    def residual(p, t):
        slope = jax.vmap(jax.grad(u, argnums=1), (None, 0))(p, t[:, 0])
        return (slope + jax.vmap(u, (None, 0))(p, t[:, 0]))[:, None]

    params = {"w": normal(4), "b": normal(4), "v": normal(4)}
    t = np.linspace(0, 2, 15)[:, None]
    return of_jax(residual, params, "squared-error", (t, np.cos(t)), squared)


@entry("jax")
def jax_gaussian_process():
    X, y = normal(12, 1), normal(12)

    def fun(log_theta):
        length, signal, noise = jnp.exp(log_theta)
        squares = jnp.sum((X[:, None] - X[None]) ** 2, axis=2)
        K = signal * jnp.exp(-squares / (2 * length**2)) + (noise + 1e-6) * jnp.eye(len(y))
        L = jnp.linalg.cholesky(K)
        alpha = jax.scipy.linalg.solve_triangular(L, y, lower=True)
        return alpha @ alpha / 2 + jnp.sum(jnp.log(jnp.diag(L)))

    return of_jax(fun, np.zeros(3))
