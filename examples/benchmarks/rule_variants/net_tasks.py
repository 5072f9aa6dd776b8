"""Nets that a core trains in seconds: the paper's auto-encoders made small, and other kinds.

| net | samples |
|---|---|
| CURVES auto-encoder, MNIST auto-encoder | generated curves, digits; halved to 14x14 pixels |
| convolutional, residual, lstm, transformer | digits, the nets of `net_suite/small_nets.py` |
| Poisson | a physics-informed net: u'' = f on an interval, two conditions at its ends |
| classifier, fit, autoencoder | generated: toys |

The digits are MNIST's, from KSDMIN_DATA.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch

import ksdmin
from examples.benchmarks.net_suite.small_nets import NETS as IMAGE_NETS
from examples.benchmarks.rule_variants import kept_data, preloaded
from examples.data import curves, mnist
from examples.harness.net_training.tasks import AUTO_ENCODING, CLASSIFICATION

NETS, ROUNDED = "nets", "rounded nets"
PASSES = (20, 60)
REFERENCE_PASSES = 300
L2 = 1e-5
FAR = 10**9
POINTS = 2000  # where the equation is to hold
DIGITS = "MNIST"
IMAGES, FEWER_IMAGES = 4000, 1200  # of the auto-encoders, of the other image nets
Made = Any  # a problem of ksdmin's


def layers(*widths: int) -> torch.nn.Sequential:
    """A net with tanh between its layers."""
    parts: list[torch.nn.Module] = []
    for before, after in pairwise(widths):
        parts += [torch.nn.Linear(before, after), torch.nn.Tanh()]
    return torch.nn.Sequential(*parts[:-1])


# --- Data, as numpy arrays that all processes share ---


def halved(pixels: np.ndarray) -> np.ndarray:
    """28x28 pixels -> 14x14."""
    return pixels.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196)


def drawn_curves() -> tuple[np.ndarray, np.ndarray]:
    X = halved(curves.generate(IMAGES, np.random.default_rng(0)))
    return X, X


def first_digits() -> tuple[np.ndarray, np.ndarray]:
    """Of MNIST, those that are used."""
    return mnist.pixels("train")[:IMAGES], mnist.labels("train")[:IMAGES]


def digits() -> tuple[np.ndarray, np.ndarray]:
    X = halved(kept_data.load(DIGITS, first_digits)[0])
    return X, X


def labelled_digits() -> tuple[np.ndarray, np.ndarray]:
    X, labels = kept_data.load(DIGITS, first_digits)
    return X[:FEWER_IMAGES], labels[:FEWER_IMAGES]


def of_classifier() -> tuple[np.ndarray, np.ndarray]:
    """2000 points of ten dimensions, five classes by another net."""
    X = torch.randn(2000, 10)
    labels = (3 * layers(10, 15, 5)(X) + 0.1 * torch.randn(2000, 5)).argmax(1)
    return X.numpy(), labels.numpy()


def of_fit() -> tuple[np.ndarray, np.ndarray]:
    """1000 values of a wavy function of eight variables."""
    X = torch.rand(1000, 8) * 2 - 1
    y = torch.sin(3 * X[:, :2].sum(1)) + X[:, 2] * X[:, 3] + 0.05 * torch.randn(1000)
    return X.numpy(), y[:, None].numpy()


def of_autoencoder() -> tuple[np.ndarray, np.ndarray]:
    """1500 points on a curved surface of three dimensions, in twenty."""
    surface = torch.tanh(torch.randn(1500, 3) @ torch.randn(3, 20))
    X = (surface + 0.02 * torch.randn(1500, 20)).numpy()
    return X, X


def interval() -> tuple[np.ndarray, np.ndarray]:
    """Points where the equation holds, and its right side: u = sin(pi x) + sin(4 pi x) / 4."""
    x = np.random.default_rng(0).random((POINTS, 1))
    return x, -(np.pi**2) * (np.sin(np.pi * x) + 4 * np.sin(4 * np.pi * x))


# --- Nets and their problems ---

Maker = tuple[Callable[[], tuple], Callable[[], torch.nn.Module], Any]
TOYS: Mapping[str, Maker] = {
    "classifier 10-20-5": (of_classifier, lambda: layers(10, 20, 5), torch.nn.CrossEntropyLoss()),
    "fit 8-30-10-1": (of_fit, lambda: layers(8, 30, 10, 1), torch.nn.MSELoss()),
    "autoencoder 20-15-4-15-20": (
        of_autoencoder,
        lambda: layers(20, 15, 4, 15, 20),
        torch.nn.MSELoss(),
    ),
}
WIDTHS = 196, 40, 15, 6, 15, 40, 196
GENERATED: Mapping[str, Maker] = {
    **TOYS,
    "CURVES auto-encoder": (drawn_curves, lambda: layers(*WIDTHS), AUTO_ENCODING.loss),
    "Poisson": (interval, lambda: layers(1, 20, 20, 1), None),
}
OF_DIGITS: Mapping[str, Maker] = {
    "MNIST auto-encoder": (digits, lambda: layers(*WIDTHS), AUTO_ENCODING.loss),
    **{name: (labelled_digits, net, CLASSIFICATION.loss) for name, net in IMAGE_NETS.items()},
}


MAKERS = GENERATED | OF_DIGITS  # the cheap ones first


def data(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets, made once for all variants."""

    def make() -> tuple[np.ndarray, np.ndarray]:
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(zlib.crc32(name.encode()))
            return MAKERS[name][0]()

    return preloaded.get(NETS, name, make)


def problem(name: str, seed: int, rounded: bool) -> Made:
    """The seed is that of the first weights."""
    torch.set_num_threads(1)
    dtype = torch.float32 if rounded else torch.float64
    inputs, targets = map(torch.as_tensor, data(name))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = MAKERS[name][1]().to(dtype)
    inputs = inputs.to(dtype)
    targets = targets.to(dtype) if targets.is_floating_point() else targets
    precision = "bfloat16" if rounded else "highest"
    if (loss := MAKERS[name][2]) is None:
        ends = torch.tensor([[0.0], [1.0]], dtype=dtype)
        blocks = [(equation, (inputs, targets)), (lambda net, x: net(x), ends, 100.0)]
        return ksdmin.from_torch(model, residuals=blocks, l2=L2)
    return ksdmin.from_torch(model, loss, (inputs, targets), l2=L2, precision=precision)


def equation(net: torch.nn.Module, batch: tuple) -> torch.Tensor:
    """u'' - f, by derivatives with respect to the points."""
    x, f = batch

    def u(at: torch.Tensor) -> torch.Tensor:
        return net(at[None])[0, 0]

    second = torch.func.vmap(torch.func.hessian(u))(x)
    return second.reshape(-1, 1) - f


def run(
    name: str, weights: int, draws: int, rounded: bool, reference: bool, options: dict
) -> list[float]:
    """Values after so many passes, in float64, whatever the run computes with."""
    judge = problem(name, weights, False)
    made = problem(name, weights, True) if rounded else judge
    last = REFERENCE_PASSES if reference else PASSES[-1]
    points = [(0.0, math.log(judge.value(judge.x0)))]

    def callback(intermediate_result: Any) -> None:
        x, passes = intermediate_result.x, intermediate_result.record.passes
        points.append((passes, math.log(judge.value(x.to(torch.float64)))))
        if passes > last:
            raise StopIteration

    given = {"gtol": 0.0, "maxiter": FAR} | options
    ksdmin.minimize(made, rng=draws, callback=callback, options=given)
    if reference:
        return [math.exp(min(value for _, value in points))] * len(PASSES)
    passes, values = zip(*points, strict=True)
    return [float(np.exp(np.interp(at, passes, values))) for at in PASSES]
