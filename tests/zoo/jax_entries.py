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


@entry("jax", pytest.mark.slow)
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


@entry("jax", pytest.mark.slow)
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
