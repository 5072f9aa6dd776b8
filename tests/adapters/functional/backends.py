"""Autograd and jax under test: a small network, its data, and problems made of it."""

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

import ksdmin

SIZES = (4, 5, 3)
N = 23
LOSSES = ("squared-error", "softmax-cross-entropy", "binary-cross-entropy", "poisson")
SOME = np.array([1, 2, 5, 11, 17, 18, 22])
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


@dataclass(frozen=True)
class Backend:
    """A library under test: its numpy, and its arrays."""

    name: str
    np: Any

    def make(self, model, *args, **kwargs):
        return getattr(ksdmin, f"from_{self.name}")(model, *args, **kwargs)

    def mlp(self, params, X):
        """Layers of tanh; the parameters are a dictionary of pairs."""
        for name in sorted(params)[:-1]:
            W, b = params[name]
            X = self.np.tanh(X @ W + b)
        W, b = params[max(params)]
        return X @ W + b

    def array(self, x):
        return self.np.asarray(x)


@contextmanager
def jax_settings(x64):
    """Jax with or without float64."""
    import jax

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", x64)
    yield
    jax.config.update("jax_enable_x64", before)


def autograd_backend():
    import autograd.numpy

    return Backend("autograd", autograd.numpy)


def parameters(dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    return {
        f"layer{i}": (
            (rng.standard_normal((a, b)) / np.sqrt(a)).astype(dtype),
            (0.3 * rng.standard_normal(b)).astype(dtype),
        )
        for i, (a, b) in enumerate(pairwise(SIZES))
    }


def samples(loss, n=N, dtype="float64", seed=1):
    rng = np.random.default_rng(seed)
    X, z = rng.standard_normal((n, SIZES[0])), rng.standard_normal((n, SIZES[-1]))
    targets = {
        "squared-error": z.astype(dtype),
        "softmax-cross-entropy": rng.integers(0, SIZES[-1], n),
        "binary-cross-entropy": (z > 0).astype(dtype),
        "poisson": rng.poisson(1.5, z.shape).astype(dtype),
    }
    return X.astype(dtype), targets[loss]


def make(backend, loss, **kwargs):
    """The problem of the network."""
    return backend.make(backend.mlp, loss, samples(loss), params=parameters(), **kwargs)


def matrix(backend, problem, idx=slice(None)):
    """The curvature of a problem at its start."""
    product = problem.curvature(problem.x0, idx)
    units = np.eye(len(problem.x0))
    return np.array([np.asarray(product(backend.array(unit))) for unit in units]).T
