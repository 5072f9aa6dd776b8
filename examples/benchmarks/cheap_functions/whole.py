"""Functions of all variables at once: residuals of differential equations, grids, sparse data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.sparse
from scipy.special import expit

from examples.benchmarks.cheap_functions.elements import Array, Product


class Function(Protocol):
    """What every family makes, beside the start."""

    def value(self, x: Array) -> float: ...

    def gradient(self, x: Array) -> Array: ...

    def hessian(self, x: Array) -> Product: ...


Made = tuple[Array, Function]


@dataclass(frozen=True)
class LeastSquares:
    """|r|^2, where the Jacobian of r is known by products and r_i is bent in x_i only.

    Attributes
    ----------
    residual : callable
        x -> r.
    forward, backward : callable
        (x, v) -> J v and J^T v.
    bend : callable
        x -> the second derivatives of r_i in x_i.
    """

    residual: Callable[[Array], Array]
    forward: Callable[[Array, Array], Array]
    backward: Callable[[Array, Array], Array]
    bend: Callable[[Array], Array | float]

    def value(self, x: Array) -> float:
        r = self.residual(x)
        return float(r @ r)

    def gradient(self, x: Array) -> Array:
        return 2 * self.backward(x, self.residual(x))

    def hessian(self, x: Array) -> Product:
        diagonal = self.bend(x) * self.residual(x)
        return Product(lambda p: 2 * (self.backward(x, self.forward(x, p)) + diagonal * p))


def neighbours(x: Array, v: Array, below: float, above: float) -> Array:
    """Add below v[i - 1] + above v[i + 1] to x."""
    x[1:] += below * v[:-1]
    x[:-1] += above * v[1:]
    return x


def broyden_tridiagonal(n: int) -> Made:
    return -np.ones(n), LeastSquares(
        lambda x: neighbours((3 - 2 * x) * x + 1, x, -1.0, -2.0),
        lambda x, v: neighbours((3 - 4 * x) * v, v, -1.0, -2.0),
        lambda x, v: neighbours((3 - 4 * x) * v, v, -2.0, -1.0),
        lambda x: -4.0,
    )


def morebv(n: int) -> Made:
    h = 1 / (n + 1)
    t = h * np.arange(1, n + 1)

    def jacobian(x: Array, v: Array) -> Array:
        return neighbours((2 + 1.5 * h * h * (x + t + 1) ** 2) * v, v, -1.0, -1.0)

    return t * (t - 1), LeastSquares(
        lambda x: neighbours(2 * x + h * h / 2 * (x + t + 1) ** 3, x, -1.0, -1.0),
        jacobian,
        jacobian,
        lambda x: 3 * h * h * (x + t + 1),
    )


class Trigonometric:
    """r_i = n - sum of cos x_j + i (1 - cos x_i) - sin x_i: dense, and yet of cost n."""

    def __init__(self, n: int) -> None:
        self._i = np.arange(1.0, n + 1)

    def residual(self, x: Array) -> Array:
        c = np.cos(x)
        return len(x) - c.sum() + self._i * (1 - c) - np.sin(x)

    def value(self, x: Array) -> float:
        r = self.residual(x)
        return float(r @ r)

    def gradient(self, x: Array) -> Array:
        r, s = self.residual(x), np.sin(x)
        return 2 * (s * r.sum() + (self._i * s - np.cos(x)) * r)

    def hessian(self, x: Array) -> Product:
        r, s, c = self.residual(x), np.sin(x), np.cos(x)
        own = self._i * s - c
        bent = c * r.sum() + r * (self._i * c + s)

        def apply(p: Array) -> Array:
            change = s @ p + own * p
            return 2 * (s * change.sum() + own * change + bent * p)

        return Product(apply)


def trigonometric(n: int) -> Made:
    return np.full(n, 1 / n), Trigonometric(n)


class Power:
    """(sum of i x_i^2)^2: one valley of all curvatures."""

    def __init__(self, n: int) -> None:
        self._i = np.arange(1.0, n + 1)

    def value(self, x: Array) -> float:
        return float((self._i * x) @ x) ** 2

    def gradient(self, x: Array) -> Array:
        weighted = self._i * x
        return 4 * float(weighted @ x) * weighted

    def hessian(self, x: Array) -> Product:
        weighted = self._i * x
        s = float(weighted @ x)
        return Product(lambda p: 4 * s * self._i * p + 8 * float(weighted @ p) * weighted)


def power(n: int) -> Made:
    return np.ones(n), Power(n)


class Bratu:
    """|grad u|^2 / 2 - 5 exp(u) on the unit square, u = 0 on its boundary, five-point differences.

    The minimum near 0 is that of a nonlinear Poisson equation.
    """

    STRENGTH = 5.0

    def __init__(self, side: int) -> None:
        self._side, self._source = side, self.STRENGTH / (side + 1) ** 2

    def laplacian(self, u: Array) -> Array:
        square = u.reshape(self._side, self._side)
        out = 4 * square
        out[1:] -= square[:-1]
        out[:-1] -= square[1:]
        out[:, 1:] -= square[:, :-1]
        out[:, :-1] -= square[:, 1:]
        return out.ravel()

    def value(self, u: Array) -> float:
        return float(u @ self.laplacian(u)) / 2 - self._source * float(np.exp(u).sum())

    def gradient(self, u: Array) -> Array:
        return self.laplacian(u) - self._source * np.exp(u)

    def hessian(self, u: Array) -> Product:
        bent = self._source * np.exp(u)
        return Product(lambda p: self.laplacian(p) - bent * p)


def bratu(n: int) -> Made:
    side = round(n**0.5)
    return np.zeros(side * side), Bratu(side)


class SparseLogistic:
    """Logistic regression with a ridge: two samples for each feature, ten entries in each."""

    RIDGE, ENTRIES = 1e-4, 10

    def __init__(self, n: int) -> None:
        rng = np.random.default_rng(0)
        m = 2 * n
        columns = rng.integers(0, n, (m, self.ENTRIES)).ravel()
        entries = rng.standard_normal(m * self.ENTRIES)
        rows = np.arange(0, m * self.ENTRIES + 1, self.ENTRIES)
        X = scipy.sparse.csr_array((entries, columns, rows), shape=(m, n))
        X.sum_duplicates()
        scores = X @ rng.standard_normal(n) / self.ENTRIES**0.5
        labels = np.where(rng.random(m) < expit(2 * scores), 1.0, -1.0)
        self._X = scipy.sparse.csr_array(X.multiply(labels[:, None]))
        self._columns = scipy.sparse.csr_array(self._X.T)

    def value(self, w: Array) -> float:
        losses = np.logaddexp(0, -(self._X @ w))
        return float(losses.mean()) + self.RIDGE / 2 * float(w @ w)

    def gradient(self, w: Array) -> Array:
        wrong = expit(-(self._X @ w))
        return self.RIDGE * w - self._columns @ wrong / len(wrong)

    def hessian(self, w: Array) -> Product:
        wrong = expit(-(self._X @ w))
        weights = wrong * (1 - wrong) / len(wrong)
        return Product(lambda p: self.RIDGE * p + self._columns @ (weights * (self._X @ p)))


def sparse_logistic(n: int) -> Made:
    return np.zeros(n), SparseLogistic(n)


class TotalVariation:
    """|x - b|^2 / 2 + 2 sum of sqrt((x[i+1] - x[i])^2 + 1e-4): a noisy staircase made smooth."""

    WEIGHT, SMOOTHING = 2.0, 1e-4

    def __init__(self, n: int) -> None:
        rng = np.random.default_rng(0)
        stairs = np.floor(8 * np.arange(n) / n) % 3
        self.noisy = stairs + 0.3 * rng.standard_normal(n)

    def value(self, x: Array) -> float:
        d, e = np.diff(x), x - self.noisy
        return float(e @ e) / 2 + self.WEIGHT * float(np.sqrt(d * d + self.SMOOTHING).sum())

    def gradient(self, x: Array) -> Array:
        d = np.diff(x)
        return x - self.noisy + spread(self.WEIGHT * d / np.sqrt(d * d + self.SMOOTHING))

    def hessian(self, x: Array) -> Product:
        d = np.diff(x)
        weights = self.WEIGHT * self.SMOOTHING / (d * d + self.SMOOTHING) ** 1.5
        return Product(lambda p: p + spread(weights * np.diff(p)))


def spread(v: Array) -> Array:
    """The transpose of `np.diff`."""
    out = np.zeros(len(v) + 1)
    out[1:] += v
    out[:-1] -= v
    return out


def total_variation(n: int) -> Made:
    made = TotalVariation(n)
    return made.noisy.copy(), made
