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

from collections.abc import Callable
from functools import partial
from math import sqrt
from typing import Any, Protocol

from ksdmin._adapters import curvature as _curvature
from ksdmin._adapters.curvature import SampleLoss
from ksdmin._problem.arrays import Array

LogSumExp = Callable[..., Array]


class RandomGenerator(Protocol):
    """A source of random arrays, with the names of numpy's Generator."""

    def standard_normal(self, size: Any) -> Array: ...
    def random(self, size: Any) -> Array: ...
    def gumbel(self, *, size: Any) -> Array: ...
    def poisson(self, lam: Array) -> Array: ...


def as_sample_loss(loss: Any, xp: Any, logsumexp: LogSumExp) -> SampleLoss:
    """A loss from its name, or from a callable (outputs, targets) -> one loss per sample.

    `xp` is the library's numpy namespace, `logsumexp` its function of that name.
    """
    if callable(loss):
        return SampleLoss(partial(_user_losses, loss))
    if isinstance(loss, str) and loss in LOSSES:
        return LOSSES[loss](xp, logsumexp)
    raise (ValueError if isinstance(loss, str) else TypeError)(
        f"loss={loss!r}: expected one of {', '.join(map(repr, LOSSES))}, or a "
        "callable(outputs, targets) that returns one loss per sample"
    )


def _user_losses(loss: Callable[[Array, Any], Array], z: Array, y: Any) -> Array:
    losses = loss(z, y)
    shape, samples = tuple(getattr(losses, "shape", ())), z.shape[0]
    if shape != (samples,):
        raise ValueError(
            f"loss returned shape {shape} for {samples} samples: it must return one loss per "
            f"sample, shape ({samples},), not a mean"
        )
    return losses


def _squared_error(xp: Any, logsumexp: LogSumExp) -> SampleLoss:
    return SampleLoss(
        partial(_elementwise, xp, lambda z, y: (z - y) ** 2),
        _curvature.squared_error,
        # exp(-(z - y)^2) is a Gaussian with variance 1/2
        lambda z, y, rng: (z + rng.standard_normal(z.shape) * sqrt(0.5)).astype(z.dtype),
        has_diagonal_hessian=True,
    )


def _softmax_cross_entropy(xp: Any, logsumexp: LogSumExp) -> SampleLoss:
    return SampleLoss(
        partial(_softmax_losses, xp, logsumexp),
        _curvature.softmax_cross_entropy,
        lambda z, y, rng: xp.argmax(z + rng.gumbel(size=z.shape), axis=1),
        has_diagonal_hessian=False,
    )


def _binary_cross_entropy(xp: Any, logsumexp: LogSumExp) -> SampleLoss:
    return SampleLoss(
        partial(_elementwise, xp, lambda z, y: xp.logaddexp(0.0, z) - y * z),
        _curvature.binary_cross_entropy,
        lambda z, y, rng: (rng.random(z.shape) * (1 + xp.exp(-z)) < 1).astype(z.dtype),
        has_diagonal_hessian=True,
    )


def _poisson(xp: Any, logsumexp: LogSumExp) -> SampleLoss:
    return SampleLoss(
        partial(_elementwise, xp, lambda z, y: xp.exp(z) - y * z),
        _curvature.poisson,
        lambda z, y, rng: rng.poisson(xp.exp(z)).astype(z.dtype),
        has_diagonal_hessian=True,
    )


LOSSES: dict[str, Callable[[Any, LogSumExp], SampleLoss]] = {
    "squared-error": _squared_error,
    "softmax-cross-entropy": _softmax_cross_entropy,
    "binary-cross-entropy": _binary_cross_entropy,
    "poisson": _poisson,
}


def _elementwise(xp: Any, loss: Callable[[Array, Array], Array], z: Array, y: Array) -> Array:
    if z.shape != y.shape:  # (n, 1) and (n,) would be broadcast to (n, n)
        raise _shape_error(z, y)
    return _sum_per_sample(xp, loss(z, y))


def _softmax_losses(xp: Any, logsumexp: LogSumExp, z: Array, y: Array) -> Array:
    if z.ndim < 2 or y.shape not in (z.shape, z.shape[:1] + z.shape[2:]):
        raise _shape_error(z, y)
    error = logsumexp(z, axis=1, keepdims=True) - z  # of each class, if it were the true one
    if y.shape == z.shape:
        return _sum_per_sample(xp, y * error)
    y, classes = xp.expand_dims(y, 1), xp.arange(z.shape[1]).reshape((-1,) + (1,) * (z.ndim - 2))
    valid = (y >= 0) & (y < z.shape[1])  # NaN for a label that is no class, rather than a loss of 0
    return _sum_per_sample(xp, xp.where(y == classes, error, xp.where(valid, 0.0, xp.nan)))


def _sum_per_sample(xp: Any, u: Array) -> Array:
    return xp.sum(u, axis=tuple(range(1, u.ndim))) if u.ndim > 1 else u


def _shape_error(z: Array, y: Array) -> ValueError:
    return ValueError(
        f"the outputs have shape {tuple(z.shape)}, the targets {tuple(y.shape)}: they do not match"
    )
