"""Losses as functions of scores: values, derivatives and curvature for each sample.

A link is made of the scores of some samples and their labels, and keeps the exponentials that all
of its answers need.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray


class OneScore:
    """A loss of one score per sample."""

    def weights(self) -> Array:
        """Second derivatives with respect to each score."""
        raise NotImplementedError

    def curvature(self) -> Callable[[Array], Array]:
        """How a change of the scores changes the slopes."""
        weights = self.weights()
        return lambda change: weights * change


class Logistic(OneScore):
    """log(1 + exp(-y s)), labels y of -1 or 1."""

    def __init__(self, scores: Array, labels: Array) -> None:
        self._labels, self._margins = labels, labels * scores
        self._small = np.exp(-np.abs(self._margins))  # cannot overflow

    def loss(self) -> float:
        """The mean."""
        return float(np.mean(np.log1p(self._small) + np.maximum(-self._margins, 0.0)))

    def _wrong(self) -> Array:
        """The probability of the other label."""
        return np.where(self._margins >= 0, self._small, 1.0) / (1.0 + self._small)

    def slopes(self) -> Array:
        """Derivatives with respect to the scores."""
        return -self._labels * self._wrong()

    def weights(self) -> Array:
        """Second derivatives with respect to each score."""
        return self._small / (1.0 + self._small) ** 2


class Poisson(OneScore):
    """exp(s) - y s, counts y: Poisson regression with the logarithm as its link."""

    def __init__(self, scores: Array, counts: Array) -> None:
        self._scores, self._counts = scores, counts
        with np.errstate(over="ignore"):  # far away the loss is infinite
            self._rates = np.exp(scores)

    def loss(self) -> float:
        """The mean."""
        return float(np.mean(self._rates - self._counts * self._scores))

    def slopes(self) -> Array:
        """Derivatives with respect to the scores."""
        return self._rates - self._counts

    def weights(self) -> Array:
        """Second derivatives with respect to each score."""
        return self._rates


class Huber(OneScore):
    """r^2 / 2 of the residual r = s - y, and |r| - 1/2 beyond 1."""

    def __init__(self, scores: Array, targets: Array) -> None:
        self._r = scores - targets

    def loss(self) -> float:
        """The mean."""
        size = np.abs(self._r)
        return float(np.mean(np.where(size <= 1.0, size * size / 2, size - 0.5)))

    def slopes(self) -> Array:
        """Derivatives with respect to the scores."""
        return np.clip(self._r, -1.0, 1.0)

    def weights(self) -> Array:
        """Second derivatives with respect to each score."""
        return (np.abs(self._r) <= 1.0).astype(float)


class LogCosh(OneScore):
    """log cosh r of the residual r = s - y."""

    def __init__(self, scores: Array, targets: Array) -> None:
        self._r = scores - targets

    def loss(self) -> float:
        """The mean."""
        return float(np.mean(np.logaddexp(self._r, -self._r) - np.log(2.0)))

    def slopes(self) -> Array:
        """Derivatives with respect to the scores."""
        return np.tanh(self._r)

    def weights(self) -> Array:
        """Second derivatives with respect to each score."""
        return 1.0 - np.tanh(self._r) ** 2


class Cauchy(OneScore):
    """log(1 + r^2) / 2 of the residual r = s - y: not convex."""

    def __init__(self, scores: Array, targets: Array) -> None:
        self._r = scores - targets

    def loss(self) -> float:
        """The mean."""
        return float(np.mean(np.log1p(self._r * self._r) / 2))

    def slopes(self) -> Array:
        """Derivatives with respect to the scores."""
        return self._r / (1.0 + self._r * self._r)

    def weights(self) -> Array:
        """Second derivatives with respect to each score."""
        squares = self._r * self._r
        return (1.0 - squares) / (1.0 + squares) ** 2


class Softmax:
    """The cross-entropy of softmax(s), with a row of scores s and a label 0, 1, ... per sample."""

    def __init__(self, scores: Array, labels: Array) -> None:
        at = np.arange(len(labels)), labels
        shifted = scores - scores.max(axis=1, keepdims=True)
        self._labelled = at
        self._right = shifted[at]
        self._p = np.exp(shifted, out=shifted)
        self._sums = self._p.sum(axis=1)
        self._p /= self._sums[:, None]

    def loss(self) -> float:
        """The mean."""
        return float(np.mean(np.log(self._sums) - self._right))

    def slopes(self) -> Array:
        """Derivatives with respect to the scores."""
        slopes = self._p.copy()
        slopes[self._labelled] -= 1.0
        return slopes

    def weights(self) -> Array:
        """Second derivatives with respect to each score."""
        return self._p * (1.0 - self._p)

    def curvature(self) -> Callable[[Array], Array]:
        """How a change of the scores changes the slopes."""
        p = self._p

        def apply(change: Array) -> Array:
            weighted = p * change
            weighted -= p * weighted.sum(axis=1, keepdims=True)
            return weighted

        return apply
