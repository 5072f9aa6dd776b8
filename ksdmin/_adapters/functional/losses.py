"""Losses by name, for libraries with numpy's interface: values, Hessians in the outputs, draws.

Each loss is one number per sample, a sum over the sample's outputs z and targets y:

=========================== ============================== ==========================
name                        loss                           targets
=========================== ============================== ==========================
``"squared-error"``         (z - y)^2                      as the outputs
``"softmax-cross-entropy"`` -log softmax(z)[y], classes    classes, or probabilities
                            along axis 1                   that sum to one
``"binary-cross-entropy"``  log(1 + exp(z)) - y z          0 or 1, as the outputs
``"poisson"``               exp(z) - y z                   counts, as the outputs
=========================== ============================== ==========================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from ksdmin._adapters import curvature as _curvature
from ksdmin._adapters.arguments import JOINED, REAL_PARTS, Block, check_real, check_rows
from ksdmin._adapters.curvature import Product, SampleLoss
from ksdmin._adapters.trees import tree_leaves
from ksdmin._problem.arrays import Array

LogSumExp = Callable[..., Array]
RandomGenerator = Any  # a source of random arrays, with the names of numpy's Generator


def as_sample_loss(loss: Any, xp: Any, logsumexp: LogSumExp) -> SampleLoss:
    """A loss from its name, or from a callable (outputs, targets) -> one loss per sample.

    `xp` is the library's numpy namespace, `logsumexp` its function of that name.
    """
    if callable(loss):
        return SampleLoss(partial(_user_losses, loss))
    known = _by_name(xp, logsumexp)
    if isinstance(loss, str) and loss in known:
        return known[loss]
    raise (ValueError if isinstance(loss, str) else TypeError)(
        f"loss={loss!r}: expected one of {', '.join(map(repr, known))}, or a "
        "callable(outputs, targets) that returns one loss per sample"
    )


def _user_losses(loss: Callable[[Array, Any], Array], z: Array, y: Any) -> Array:
    losses = loss(z, y)
    if not hasattr(losses, "shape"):
        raise TypeError(
            f"loss returned {type(losses).__name__}: expected an array with one loss per sample"
        )
    shape, samples = tuple(losses.shape), z.shape[0]
    if shape != (samples,):
        raise ValueError(
            f"loss returned shape {shape} for {samples} samples: it must return one loss per "
            f"sample, shape ({samples},), not a mean"
        )
    return losses


def _by_name(xp: Any, logsumexp: LogSumExp) -> dict[str, SampleLoss]:
    """The table above: losses, Hessians in the outputs, draws."""
    return {
        "squared-error": SampleLoss(
            partial(_elementwise, xp, lambda z, y: (z - y) ** 2),
            _curvature.squared_error,
            # exp(-(z - y)^2) is a Gaussian with variance 1/2
            lambda z, y, rng: (z + rng.standard_normal(z.shape) * sqrt(0.5)).astype(z.dtype),
            has_diagonal_hessian=True,
        ),
        "softmax-cross-entropy": SampleLoss(
            partial(_softmax_losses, xp, logsumexp),
            _curvature.softmax_cross_entropy,
            lambda z, y, rng: xp.argmax(z + rng.gumbel(size=z.shape), axis=1),
            has_diagonal_hessian=False,
        ),
        "binary-cross-entropy": SampleLoss(
            partial(_elementwise, xp, lambda z, y: xp.logaddexp(0.0, z) - y * z),
            _curvature.binary_cross_entropy,
            lambda z, y, rng: (rng.random(z.shape) * (1 + xp.exp(-z)) < 1).astype(z.dtype),
            has_diagonal_hessian=True,
        ),
        "poisson": SampleLoss(
            partial(_elementwise, xp, lambda z, y: xp.exp(z) - y * z),
            _curvature.poisson,
            lambda z, y, rng: rng.poisson(xp.exp(z)).astype(z.dtype),
            has_diagonal_hessian=True,
        ),
    }


def _elementwise(xp: Any, loss: Callable[[Array, Array], Array], z: Array, y: Array) -> Array:
    if z.shape != y.shape:  # (n, 1) and (n,) would be broadcast to (n, n)
        raise _shape_error(z, y)
    return _sum_per_sample(xp, loss(z, y))


def _softmax_losses(xp: Any, logsumexp: LogSumExp, z: Array, y: Array) -> Array:
    if z.ndim < 2 or y.shape not in (z.shape, z.shape[:1] + z.shape[2:]):
        raise _shape_error(z, y)
    error = logsumexp(z, axis=1, keepdims=True) - z  # for each class, if it were the true one
    if y.shape == z.shape:
        return _sum_per_sample(xp, y * error)
    y, classes = xp.expand_dims(y, 1), xp.arange(z.shape[1]).reshape((-1,) + (1,) * (z.ndim - 2))
    valid = (y >= 0) & (y < z.shape[1])  # a label that is not a class gives NaN, not a loss of 0
    return _sum_per_sample(xp, xp.where(y == classes, error, xp.where(valid, 0.0, xp.nan)))


def _sum_per_sample(xp: Any, u: Array) -> Array:
    return xp.sum(u, axis=tuple(range(1, u.ndim))) if u.ndim > 1 else u


def _shape_error(z: Array, y: Array) -> ValueError:
    mend = ""
    if tuple(z.shape) == (*y.shape, 1) and y.ndim == 1:
        mend = ". Give the targets as y[:, None]"
    elif tuple(y.shape) == (z.shape[0], 1):
        mend = ". Give the targets as y[:, 0]"
    return ValueError(
        f"the outputs have shape {tuple(z.shape)}, the targets {tuple(y.shape)}: they do not "
        f"match{mend}"
    )


def check_targets(loss: Any, y: Any, outputs: int) -> None:
    """Raise for targets that a loss by name has no value for, or no minimum."""
    if not hasattr(y, "dtype") or not hasattr(y, "ndim") or y.size == 0:
        return
    low, high = float(y.min()), float(y.max())
    if loss == "binary-cross-entropy" and (low < 0 or high > 1):
        raise ValueError(
            f"{loss}: the targets go from {low:g} to {high:g}; expected 0 and 1 (for -1 and 1, "
            "give (y + 1) / 2)"
        )
    # with more axes they may be probabilities of the classes
    classes = loss == "softmax-cross-entropy" and y.ndim == 1
    if classes and (low < 0 or high >= outputs or (y % 1 != 0).any()):
        raise ValueError(
            f"{loss}: the targets are numbers from {low:g} to {high:g}; expected class labels, "
            f"whole numbers from 0 up to, but not including, the number of outputs, {outputs}"
        )


# Blocks of residuals: functions r(params, batch) as models with outputs and a squared loss


def as_model(block: Block) -> Callable[[Any, Any], Array]:
    """The residuals as outputs, one row per sample; a block without samples has one row."""
    whole = block.data is None

    def residuals(params: Any, batch: Any) -> Array:
        r = block.residuals(params) if whole else block.residuals(params, batch)
        check_real(r, "r", REAL_PARTS)
        if not hasattr(r, "shape"):
            kind = type(r).__name__
            raise TypeError(f"r returned {kind}: expected one array of residuals. {JOINED}")
        check_rows(tuple(r.shape), None if whole else _rows(batch))
        return r[None] if whole else r

    return residuals


def as_data(block: Block) -> tuple[Any, Array]:
    """The samples of a block, and the targets of the residuals: zeros."""
    data = np.zeros(1) if block.data is None else block.data
    return data, np.zeros(_rows(data), dtype=np.float32)


def squared_residuals(xp: Any) -> SampleLoss:
    """The mean of the squared residuals of a sample; its targets are zeros, one per sample."""
    return SampleLoss(partial(_square_losses, xp), _hessian, _draw, has_diagonal_hessian=True)


def _square_losses(xp: Any, z: Array, y: Array) -> Array:
    """Squares of outputs minus zeros; or, for "fisher", minus targets drawn like the residuals."""
    squares = z**2 if y.shape != z.shape else (z - y) ** 2
    return xp.mean(squares, axis=tuple(range(1, z.ndim))) if z.ndim > 1 else squares


def _hessian(z: Array, y: Array, w: Array) -> Product:
    return _curvature.squared_error(z, y, w, scale=2 / _elements(z))


def _draw(z: Array, y: Array, rng: RandomGenerator) -> Array:
    deviation = math.sqrt(_elements(z) / 2)  # of exp(-mean (z - y)^2)
    return (z + rng.standard_normal(z.shape) * deviation).astype(z.dtype)


def _elements(z: Array) -> int:
    return math.prod(z.shape[1:])


def _rows(batch: Any) -> int:
    arrays = tree_leaves(batch)
    if not arrays or not getattr(arrays[0], "shape", ()):
        raise TypeError("data: expected arrays with one row per sample, or a tuple or dict of them")
    return int(arrays[0].shape[0])
