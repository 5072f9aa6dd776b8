"""Networks of flax and equinox, where these are installed."""

from importlib.util import find_spec

import numpy as np

from tests.zoo.jax_entries import entropy, of_jax, squared
from tests.zoo.registry import entry

RNG = np.random.default_rng(1)
X = RNG.standard_normal((12, 3))
Y = RNG.standard_normal((12, 2))
CLASSES = RNG.integers(0, 2, 12)

if find_spec("flax") is not None:

    @entry("jax")
    def flax_linen():
        import jax
        import jax.numpy as jnp
        from flax import linen as nn

        class Net(nn.Module):
            @nn.compact
            def __call__(self, x):
                x = nn.LayerNorm(param_dtype=jnp.float64)(nn.Dense(4, param_dtype=jnp.float64)(x))
                return nn.Dense(2, param_dtype=jnp.float64)(nn.tanh(x))

        net = Net()
        params = net.init(jax.random.key(0), jnp.asarray(X))
        return of_jax(net.apply, params, "softmax-cross-entropy", (X, CLASSES), entropy)

    @entry("jax")
    def flax_nnx():
        import jax.numpy as jnp
        from flax import nnx

        class Net(nnx.Module):
            def __init__(self, rngs):
                self.first = nnx.Linear(3, 4, param_dtype=jnp.float64, rngs=rngs)
                self.second = nnx.Linear(4, 2, param_dtype=jnp.float64, rngs=rngs)

            def __call__(self, x):
                return self.second(nnx.gelu(self.first(x)))

        graph, params = nnx.split(Net(nnx.Rngs(0)))
        params = nnx.to_pure_dict(params)

        def model(params, x):
            return nnx.merge(graph, nnx.State(params))(x)

        return of_jax(model, params, "squared-error", (X, Y), squared)


if find_spec("equinox") is not None:

    @entry("jax")
    def equinox_mlp():
        """Its leaves that are no arrays (the activation) go into `static`."""
        import equinox as eqx
        import jax

        net = eqx.nn.MLP(3, 2, 4, 1, activation=jax.numpy.tanh, key=jax.random.key(0))
        params, static = eqx.partition(net, eqx.is_inexact_array)

        def model(params, x):
            return jax.vmap(eqx.combine(params, static))(x)

        return of_jax(model, params, "squared-error", (X, Y), squared)
