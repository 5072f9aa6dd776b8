"""Functions of HIPS autograd."""

import autograd.numpy as np
from autograd.extend import defvjp, primitive
from autograd.scipy.special import logsumexp

import ksdmin
from tests.zoo.registry import Functional, entry

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape)


def squared(z, y):
    return np.sum((z - y) ** 2, axis=1)


def entropy(z, y):
    return logsumexp(z, axis=1) - z[np.arange(len(y)), y]


def of_autograd(*args, **kwargs):
    return Functional(ksdmin.from_autograd, *args, **kwargs)


@entry("autograd")
def autograd_mlp():
    def mlp(layers, x):
        for W, b in layers[:-1]:
            x = np.tanh(x @ W + b)
        return x @ layers[-1][0] + layers[-1][1]

    layers = [(normal(2, 4), normal(4)), (normal(4, 3), normal(3))]
    data = normal(20, 2), RNG.integers(0, 3, 20)
    return of_autograd(mlp, layers, "softmax-cross-entropy", data, entropy)


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
    return of_autograd(rnn, params, "squared-error", (normal(10, 4, 2), normal(10, 1)), squared)


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
    return of_autograd(model, params, "squared-error", (normal(15, 2), normal(15, 1)), squared)


@entry("autograd")
def autograd_loss_of_ones_own():
    def huber_like(z, y):
        return np.sum(np.sqrt(1 + (z - y) ** 2) - 1, axis=1)

    def model(p, x):
        return np.sin(x @ p[0]) @ p[1]

    return of_autograd(
        model, (normal(2, 3), normal(3, 2)), huber_like, (normal(15, 2), normal(15, 2))
    )


@entry("autograd")
def autograd_convolution_by_einsum():
    def model(p, x):
        windows = np.stack([x[:, i : i + 4] for i in range(3)], axis=2)
        return np.einsum("ntw,w->nt", windows, p["filter"]) @ p["head"]

    params = {"filter": normal(3), "head": normal(4, 1)}
    return of_autograd(model, params, "squared-error", (normal(12, 6), normal(12, 1)), squared)


@entry("autograd")
def autograd_poisson_regression():
    def losses(z, y):
        return np.sum(np.exp(z) - y * z, axis=1)

    def model(p, x):
        return x @ p["slope"] + p["shift"]

    counts = RNG.poisson(2.0, (15, 1)).astype(float)
    params = {"slope": normal(3, 1) / 3, "shift": np.zeros(1)}
    return of_autograd(model, params, "poisson", (normal(15, 3), counts), losses)


@entry("autograd")
def autograd_rosenbrock():
    def fun(x):
        return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    return of_autograd(fun, np.array([-1.0, 1.2, 0.5, 0.3]))


@entry("autograd")
def autograd_gaussian_mixture():
    Y = np.concatenate([normal(20) - 2, normal(20) / 2 + 2])

    def negative_log_likelihood(p):
        log_weight = p["weight"] - logsumexp(p["weight"])
        t = (Y[:, None] - p["mean"]) / np.exp(p["log_scale"])
        return -np.mean(logsumexp(log_weight - p["log_scale"] - t**2 / 2, axis=1))

    start = {"weight": np.zeros(3), "mean": normal(3), "log_scale": np.zeros(3)}
    return of_autograd(negative_log_likelihood, start)


@entry("autograd")
def autograd_gaussian_process():
    X, y = normal(12, 1), normal(12)

    def fun(log_theta):
        length, signal, noise = np.exp(log_theta[0]), np.exp(log_theta[1]), np.exp(log_theta[2])
        squares = np.sum((X[:, None] - X[None]) ** 2, axis=2)
        K = signal * np.exp(-squares / (2 * length**2)) + (noise + 1e-6) * np.eye(len(y))
        _, logdet = np.linalg.slogdet(K)
        return y @ np.linalg.solve(K, y) / 2 + logdet / 2

    return of_autograd(fun, np.zeros(3))


@entry("autograd")
def autograd_ode_fit():
    def solve(rates):
        state, path = np.array([1.0, 0.5]), []
        for _ in range(15):
            x, y = state[0], state[1]
            slope = np.array([rates[0] * x - rates[1] * x * y, rates[2] * x * y - rates[3] * y])
            state = state + 0.1 * slope
            path.append(state)
        return np.stack(path)

    seen = solve(np.array([1.5, 1.0, 1.0, 0.7]))
    return of_autograd(lambda p: np.mean((solve(np.exp(p)) - seen) ** 2), np.zeros(4))
