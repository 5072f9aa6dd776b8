"""A linear model with a loss on its scores, as a ksdmin problem.

The objective is the mean loss over the samples `idx` + l2 / 2 |w|^2. The scores X w are computed
once for the value, the gradient and the products at a point, and taken from those of the whole
set where these are known: KSD and SciPy's methods call the same code.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

import ksdmin
from examples.benchmarks.regression_suite.loss_functions import Array, Logistic, OneScore, Softmax

WHOLE = slice(None)


class Point:
    """What is known at w on the samples `idx`."""

    def __init__(self, w: Array, idx: Any, scores: Array, link: OneScore | Softmax) -> None:
        self.w, self.idx, self.scores, self.link = w, idx, scores, link
        self.value: float | None = None
        self.gradient: Array | None = None

    def is_at(self, w: Array, idx: Any) -> bool:
        same = self.idx is idx or (_is_whole(idx) and _is_whole(self.idx))
        return same and np.array_equal(self.w, w)


def link_of(loss: int | type[OneScore]) -> tuple[Any, tuple[int, ...]]:
    """The class of the loss, and the columns of scores where there are several per sample."""
    if isinstance(loss, type):
        return loss, ()
    return (Logistic, ()) if loss == 2 else (Softmax, (int(loss),))


class LinearModel:
    """Logistic regression for labels of -1 and 1, softmax regression for 0, 1, ...; other losses.

    Parameters
    ----------
    X : sparse array in CSR format, or dense
        One row per sample.
    labels : array
        One per sample.
    loss : int or a class of losses of one score
        The number of classes (2: labels are -1 and 1), or the loss itself.
    l2 : float
        The weight of |w|^2 / 2.
    diagonal : bool
        Whether the diagonal of the Hessian is offered, for a pass over the samples each time.
    """

    def __init__(
        self,
        X: Any,
        labels: Array,
        loss: int | type[OneScore],
        l2: float,
        diagonal: bool = False,
    ) -> None:
        self.X, self.labels, self.l2 = X, labels, l2
        self.offer_diagonal(diagonal)
        self._link, self._columns = link_of(loss)
        self.subsets = self.samples = X.shape[0]
        self.x0 = np.zeros(X.shape[1] * math.prod(self._columns))
        self._forget()

    def offer_diagonal(self, diagonal: bool) -> None:
        """Whether a method may ask for the diagonal of the Hessian."""
        # A value is one product with X, a gradient one more; what is known costs nothing.
        self.traits = ksdmin.Traits(
            separate_gradient=True, has_diagonal=diagonal, counts_itself=True
        )

    def _forget(self) -> None:
        self.counts = SimpleNamespace(nfev=0, njev=0, nhev=0)
        self._points: deque[Point] = deque(maxlen=3)  # on A, B and C
        self._rows: deque[tuple[Any, Any, Array]] = deque(maxlen=2)  # of B and C
        self._squares: Any = None

    def counting(self, counts: Any) -> LinearModel:
        """A copy for one run, with its own memory, that counts in `counts`."""
        copied = copy.copy(self)
        copied._forget()
        copied.counts = counts
        return copied

    # What a ksdmin problem has

    def value(self, w: Array, idx: Any = WHOLE) -> float:
        point = self._point(w, idx)
        if point.value is None:
            self.counts.nfev += 1
            point.value = point.link.loss() + self.l2 / 2 * float(w @ w)
        return point.value

    def value_and_gradient(self, w: Array, idx: Any = WHOLE, *, diagonal: bool = False) -> Any:
        value, point = self.value(w, idx), self._point(w, idx)
        if point.gradient is None:
            self.counts.njev += 1
            point.gradient = self._mean(point.link.slopes(), idx) + self.l2 * w
        if diagonal:
            return value, point.gradient, self._diagonal(point)
        return value, point.gradient

    def curvature(self, w: Array, idx: Any = WHOLE) -> Callable[[Array], Array]:
        rows, _ = self._samples(idx)
        apply = self._point(w, idx).link.curvature()

        def product(v: Array) -> Array:
            self.counts.nhev += 1
            return self._mean(apply(rows @ self._matrix(v)), idx) + self.l2 * v

        return product

    # How it is computed

    def _point(self, w: Array, idx: Any) -> Point:
        for point in self._points:
            if point.is_at(w, idx):
                return point
        rows, labels = self._samples(idx)
        known = next((point for point in self._points if point.is_at(w, WHOLE)), None)
        scores = rows @ self._matrix(w) if known is None else known.scores[idx]
        point = Point(w.copy(), idx, scores, self._link(scores, labels))
        self._points.append(point)
        return point

    def _samples(self, idx: Any) -> tuple[Any, Array]:
        """X[idx] and the labels, which are kept: products are many, selecting rows is expensive."""
        if _is_whole(idx):
            return self.X, self.labels
        for known, rows, labels in self._rows:
            if known is idx:
                return rows, labels
        self._rows.append((idx, self.X[idx], self.labels[idx]))
        return self._rows[-1][1:]

    def _mean(self, slopes: Array, idx: Any) -> Array:
        rows, _ = self._samples(idx)
        return (rows.T @ slopes).ravel() / len(slopes)

    def _matrix(self, w: Array) -> Array:
        return w.reshape(self.X.shape[1], *self._columns)

    def _diagonal(self, point: Point) -> Array:
        self.counts.njev += 1  # it costs as much as a gradient
        if self._squares is None:
            self._squares = self.X.multiply(self.X).tocsr() if hasattr(self.X, "nnz") else self.X**2
        weights = point.link.weights()
        return (self._squares[point.idx].T @ weights).ravel() / len(weights) + self.l2


def _is_whole(idx: Any) -> bool:
    return isinstance(idx, slice) and idx == WHOLE
