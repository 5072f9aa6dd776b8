"""Functions of HIPS autograd."""

import autograd.numpy as np
from autograd.extend import defvjp, primitive

import ksdmin
from tests.zoo.registry import Functional, entry, normal, squared


@entry("autograd")
def autograd_rnn():
    def rnn(p, x):
        h = np.zeros((x.shape[0], 3))
        for t in range(x.shape[1]):
            h = np.tanh(x[:, t] @ p["in"] + h @ p["hidden"] + p["bias"])
        return h @ p["out"]

    params = {
        "in": normal(2, 3),
        "hidden": normal(3, 3) / 2,
        "bias": normal(3),
        "out": normal(3, 1),
    }
    return Functional(
        ksdmin.from_autograd,
        rnn,
        params,
        "squared-error",
        (normal(10, 4, 2), normal(10, 1)),
        squared,
    )


@primitive
def softplus(x):
    """A function with a derivative of its own."""
    return np.logaddexp(0, x)


defvjp(softplus, lambda ans, x: lambda g: g / (1 + np.exp(-x)))


@entry("autograd")
def autograd_with_a_vjp_of_ones_own():
    def model(p, x):
        return softplus(x @ p["W"]) @ p["v"]

    params = {"W": normal(2, 4), "v": normal(4, 1)}
    return Functional(
        ksdmin.from_autograd,
        model,
        params,
        "squared-error",
        (normal(15, 2), normal(15, 1)),
        squared,
    )


@entry("autograd")
def autograd_gaussian_process():
    X, y = normal(12, 1), normal(12)

    def fun(log_theta):
        length, signal, noise = np.exp(log_theta[0]), np.exp(log_theta[1]), np.exp(log_theta[2])
        squares = np.sum((X[:, None] - X[None]) ** 2, axis=2)
        K = signal * np.exp(-squares / (2 * length**2)) + (noise + 1e-6) * np.eye(len(y))
        _, logdet = np.linalg.slogdet(K)
        return y @ np.linalg.solve(K, y) / 2 + logdet / 2

    return Functional(ksdmin.from_autograd, fun, np.zeros(3))
