"""Sixteen small problems: two of each family, one to tune on and one that is set aside."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.optimize import rosen, rosen_der, rosen_hess_prod
from torch import Tensor, nn
from torch.func import jvp

import ksdmin

Call = dict[str, Any]
"""Arguments of `minimize`."""


def layers(*widths: int, activation: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    """A perceptron in float64."""
    made: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        made += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*made[:-1]).double()


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape).double()


def uniform(*shape: int) -> Tensor:
    return torch.rand(*shape).double()


# --- Nets with targets that they cannot fit ---


def noisy_sine() -> Call:
    X = 6 * uniform(200, 1) - 3
    y = torch.sin(2 * X) + 0.5 * normal(200, 1)
    return {"fun": ksdmin.from_torch(layers(1, 20, 1), nn.MSELoss(), (X, y))}


def noisy_saddle() -> Call:
    X = normal(300, 2)
    y = (X[:, :1] * X[:, 1:]).tanh() + 0.2 * normal(300, 1)
    net = layers(2, 16, 16, 1, activation=nn.Softplus)
    return {"fun": ksdmin.from_torch(net, nn.MSELoss(), (X, y))}


def counts(samples: int, width: int) -> Call:
    X = 4 * uniform(samples, 2) - 2
    y = torch.poisson(torch.exp(1 + torch.sin(2 * X[:, :1]) + 0.5 * X[:, 1:]))
    return {"fun": ksdmin.from_torch(layers(2, width, 1), nn.PoissonNLLLoss(), (X, y))}


# --- Classification ---


def spiral() -> Call:
    t = 3 * torch.linspace(0.3, 3, 200).double()
    arm = torch.stack([t * torch.cos(t), t * torch.sin(t)], 1) / 5
    X = torch.cat([arm, -arm]) + 0.02 * normal(400, 2)
    y = torch.arange(400) // 200
    net = layers(2, 20, 20, 2)
    return {"fun": ksdmin.from_torch(net, nn.CrossEntropyLoss(), (X, y), l2=1e-5)}


def blobs() -> Call:
    centres, y = 2 * normal(5, 4), torch.randint(5, (600,))
    X = centres[y] + normal(600, 4)
    y = torch.where(torch.rand(600) < 0.1, torch.randint(5, (600,)), y)
    net = layers(4, 24, 5)
    return {"fun": ksdmin.from_torch(net, nn.CrossEntropyLoss(), (X, y), l2=1e-4)}


# --- Differential equations ---


def along(u: Callable[[Tensor], Tensor], x: Tensor, axis: int, order: int = 1) -> Tensor:
    """The derivative of u in one of the co-ordinates."""
    e = torch.zeros_like(x)
    e[..., axis] = 1.0

    def first(x: Tensor) -> Tensor:
        return jvp(u, (x,), (e,))[1]

    return first(x) if order == 1 else jvp(first, (x,), (e,))[1]


def edges(points: int, sides: int) -> Tensor:
    t = uniform(points)
    zero, one = torch.zeros_like(t), torch.ones_like(t)
    pairs = [(t, zero), (zero, t), (one, t), (t, one)]
    return torch.cat([torch.stack(pair, 1) for pair in pairs[:sides]])


def poisson_equation() -> Call:
    def equation(model: Any, p: Tensor) -> Tensor:
        def u(p: Tensor) -> Tensor:
            return model(p).squeeze(-1)

        source = 8 * np.pi**2 * torch.sin(2 * np.pi * p).prod(-1)
        return along(u, p, 0, 2) + along(u, p, 1, 2) + source

    def border(model: Any, p: Tensor) -> Tensor:
        return model(p).squeeze(-1)

    blocks = [(equation, uniform(300, 2), 1.0), (border, edges(75, 4), 10.0)]
    return {"fun": ksdmin.from_torch(layers(2, 20, 20, 20, 1), residuals=blocks)}


def heat_equation() -> Call:
    def equation(model: Any, p: Tensor) -> Tensor:
        def u(p: Tensor) -> Tensor:
            return model(p).squeeze(-1)

        return along(u, p, 1) - 0.2 * along(u, p, 0, 2)

    def border(model: Any, p: Tensor) -> Tensor:
        start = torch.sin(np.pi * p[..., 0]) * (p[..., 1] == 0).double()
        return model(p).squeeze(-1) - start

    blocks = [(equation, uniform(240, 2), 1.0), (border, edges(60, 3), 10.0)]
    return {"fun": ksdmin.from_torch(layers(2, 16, 16, 16, 1), residuals=blocks)}


# --- Curve fits ---


def decays() -> Call:
    rng, t = np.random.default_rng(0), np.linspace(0, 10, 80)
    y = 3 * np.exp(-0.5 * t) + 2 * np.exp(-1.5 * t) + 0.1 * rng.standard_normal(80)

    def residuals(x: np.ndarray) -> np.ndarray:
        return x[0] * np.exp(-x[1] * t) + x[2] * np.exp(-x[3] * t) - y

    def jac(x: np.ndarray) -> np.ndarray:
        slow, fast = np.exp(-x[1] * t), np.exp(-x[3] * t)
        return np.stack([slow, -x[0] * t * slow, fast, -x[2] * t * fast], 1)

    return {
        "fun": ksdmin.as_problem(residuals=residuals, jac=jac),
        "x0": np.array([1.0, 0.1, 1.0, 3.0]),
    }


def peaks() -> Call:
    rng, t = np.random.default_rng(0), np.linspace(-5, 5, 300)

    def bell(centre: float, width: float) -> np.ndarray:
        return np.exp(-(((t - centre) / width) ** 2) / 2)

    y = bell(-1, 1) + 0.7 * bell(1.2, 0.6) + 0.4 * bell(3, 1) + 0.05 * rng.standard_normal(300)

    def residuals(x: np.ndarray) -> np.ndarray:
        return sum(height * bell(centre, width) for height, centre, width in x.reshape(3, 3)) - y

    def jac(x: np.ndarray) -> np.ndarray:
        columns = []
        for height, centre, width in x.reshape(3, 3):
            e, s = bell(centre, width), (t - centre) / width
            columns += [e, height * e * s / width, height * e * s**2 / width]
        return np.stack(columns, 1)

    x0 = np.array([1.0, -2.0, 1.5, 1.0, 0.0, 1.5, 1.0, 2.0, 1.5])
    return {"fun": ksdmin.as_problem(residuals=residuals, jac=jac), "x0": x0}


# --- Plain functions ---


def rosenbrock() -> Call:
    x0 = np.resize([-1.2, 1.0], 50)
    return {"fun": rosen, "x0": x0, "jac": rosen_der, "hessp": rosen_hess_prod}


def singular(n: int = 100) -> Call:
    """Powell's, chained."""
    i = np.arange(0, n - 3, 2)

    def parts(x: np.ndarray) -> tuple[np.ndarray, ...]:
        a, b, c, d = x[i], x[i + 1], x[i + 2], x[i + 3]
        return a + 10 * b, c - d, b - 2 * c, a - 10 * d

    def fun(x: np.ndarray) -> float:
        A, B, C, D = parts(x)
        return float((A**2 + 5 * B**2 + C**4 + 10 * D**4).sum())

    def jac(x: np.ndarray) -> np.ndarray:
        (A, B, C, D), g = parts(x), np.zeros(n)
        np.add.at(g, i, 2 * A + 40 * D**3)
        np.add.at(g, i + 1, 20 * A + 4 * C**3)
        np.add.at(g, i + 2, 10 * B - 8 * C**3)
        np.add.at(g, i + 3, -10 * B - 400 * D**3)
        return g

    return {"fun": fun, "x0": np.resize([3.0, -1.0, 0.0, 1.0], n), "jac": jac}


# --- Linear models ---


def logistic() -> Call:
    X = normal(3000, 40) * torch.logspace(0, -1.5, 40).double()
    y = (uniform(3000, 1) < torch.sigmoid(3 * X @ normal(40, 1))).double()
    model = nn.Linear(40, 1).double()
    return {"fun": ksdmin.from_torch(model, nn.BCEWithLogitsLoss(), (X, y), l2=1e-4)}


def softmax() -> Call:
    X = normal(2000, 20) * torch.logspace(0, -2, 20).double()
    gumbel = -torch.log(-torch.log(uniform(2000, 6)))
    y = (3 * X @ normal(20, 6) + gumbel).argmax(1)
    model = nn.Linear(20, 6).double()
    return {"fun": ksdmin.from_torch(model, nn.CrossEntropyLoss(), (X, y), l2=1e-5)}


# --- Nets on samples ---


def teacher() -> Call:
    X = normal(5000, 8)
    y = 3 * layers(8, 10, 1)(X).detach() + 0.1 * normal(5000, 1)
    return {"fun": ksdmin.from_torch(layers(8, 20, 20, 1), nn.MSELoss(), (X, y), l2=1e-6)}


def huber() -> Call:
    X = normal(4000, 6)
    y = 3 * layers(6, 10, 1)(X).detach() + 0.3 * normal(4000, 1)
    net = layers(6, 24, 24, 1, activation=nn.ReLU)
    return {"fun": ksdmin.from_torch(net, nn.HuberLoss(), (X, y), l2=1e-5)}


HALVES: dict[str, dict[str, Callable[[], Call]]] = {
    "tuned": {
        "a net, noisy sine": noisy_sine,
        "a net, counts": lambda: counts(120, 12),
        "a net, two spirals": spiral,
        "Poisson's equation": poisson_equation,
        "a fit of decays": decays,
        "Rosenbrock, 50": rosenbrock,
        "logistic regression": logistic,
        "a net on samples": teacher,
    },
    "aside": {
        "a net, noisy saddle": noisy_saddle,
        "a net, more counts": lambda: counts(300, 20),
        "a net, noisy classes": blobs,
        "the heat equation": heat_equation,
        "a fit of peaks": peaks,
        "Powell's singular, 100": singular,
        "softmax regression": softmax,
        "a Huber net on samples": huber,
    },
}


def made(name: str, seed: int = 0) -> Call:
    """A problem."""
    torch.manual_seed(seed)
    return {**HALVES["tuned"], **HALVES["aside"]}[name]()
