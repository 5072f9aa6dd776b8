"""Functions of jax, many as jaxopt's users have them."""

from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np

import ksdmin
from tests.zoo.registry import Functional, entry, normal, squared


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
    return Functional(
        ksdmin.from_jax, rnn, params, "squared-error", (normal(10, 4, 2), normal(10, 1)), squared
    )


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
    return Functional(
        ksdmin.from_jax, model, params, "squared-error", (normal(15, 2), normal(15, 1)), squared
    )


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
    return Functional(ksdmin.from_jax, residual, params, "squared-error", (t, np.cos(t)), squared)


if find_spec("flax") is not None:

    @entry("jax")
    def flax_nnx():
        """Modules of linen and of equinox: tests/adapters/functional/test_leaves.py."""
        from flax import nnx

        class Net(nnx.Module):
            def __init__(self, rngs):
                self.first = nnx.Linear(3, 4, param_dtype=jnp.float64, rngs=rngs)
                self.second = nnx.Linear(4, 2, param_dtype=jnp.float64, rngs=rngs)

            def __call__(self, x):
                return self.second(nnx.gelu(self.first(x)))

        graph, params = nnx.split(Net(nnx.Rngs(0)))

        def model(params, x):
            return nnx.merge(graph, nnx.State(params))(x)

        data = normal(12, 3), normal(12, 2)
        return Functional(
            ksdmin.from_jax, model, nnx.to_pure_dict(params), "squared-error", data, squared
        )
