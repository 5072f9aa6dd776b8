"""Models and functions of autograd and jax."""

from functools import partial

import autograd.numpy as anp
import numpy as np

import ksdmin
from tests.reference_runs.registry import jax_float32, run


def start(dtype, sizes=(4, 6, 3)):
    rng = np.random.default_rng(0)
    a, b, c = sizes
    return {
        "first": (rng.standard_normal((a, b)).astype(dtype) / 2, np.zeros(b, dtype)),
        "second": (rng.standard_normal((b, c)).astype(dtype) / 2, np.zeros(c, dtype)),
    }


def samples(loss, m, dtype):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((m, 4))
    z = np.tanh(X @ rng.standard_normal((4, 3))) + 0.3 * rng.standard_normal((m, 3))
    targets = {"squared-error": z.astype(dtype), "softmax-cross-entropy": np.argmax(z, axis=1)}
    return X.astype(dtype), targets[loss]


def net(xp):
    """A model in terms of a library's numpy."""

    def model(params, inputs):
        (W, b), (V, c) = params["first"], params["second"]
        return xp.tanh(inputs @ W + b) @ V + c

    return model


def line(params, inputs):
    W, b = params
    return inputs @ W + b


def minimize_model(make, model, dtype, loss, m, params=None, options=None, **given):
    params = start(dtype) if params is None else params
    problem = make(model, loss, samples(loss, m, dtype), params=params, **given)
    return ksdmin.minimize(problem, rng=0, options={"maxiter": 12, **(options or {})})


# --- autograd ---

in_autograd = partial(minimize_model, ksdmin.from_autograd, net(anp), "float64")
ENTROPY, SQUARES = "softmax-cross-entropy", "squared-error"
LINE = (np.zeros((4, 3)), np.zeros(3))

run(partial(in_autograd, SQUARES, 1500, curvature="hessian", l2=1e-3), "autograd_net_hessian")


POINTS = np.random.default_rng(2).standard_normal((6000, 3)) * [1, 3, 9] + 2


def centre(xp, points):
    """A plain function of samples: the mean over `idx` of a robust distance to points."""
    return lambda x, idx: xp.mean(xp.sqrt(1 + xp.sum((x - points[idx]) ** 2, axis=1)))


@run
def autograd_function_subsets():
    problem = ksdmin.from_autograd(centre(anp, POINTS), x0=np.zeros(3), subsets=len(POINTS))
    return ksdmin.minimize(problem, rng=0)


# --- jax ---

# Short runs: compiling takes most of their seconds.
SHORT = {"krylov_dim": 4, "memory": 1, "pairs": 0, "maxiter": 6}


def in_jax(loss, **given):
    import jax.numpy as jnp

    with jax_float32():
        return minimize_model(
            ksdmin.from_jax, net(jnp), "float32", loss, 600, options=SHORT, **given
        )


run(partial(in_jax, ENTROPY), "jax_net")


@run
def jax_line():
    params = tuple(part.astype("float32") for part in LINE)
    with jax_float32():
        return minimize_model(
            ksdmin.from_jax, line, "float32", ENTROPY, 5000, params, {"gtol": 1e-3}, l2=1e-3
        )
