"""Losses as functions of scores: values, derivatives and curvature for each sample.

A link is made of the scores of some samples and their labels, and keeps the exponentials that all
of its answers need.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray


class Logistic:
    """log(1 + exp(-y s)) with one score s per sample, labels y of -1 or 1."""

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

    def curvature(self) -> Callable[[Array], Array]:
        """How a change of the scores changes the slopes."""
        weights = self.weights()
        return lambda change: weights * change


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
