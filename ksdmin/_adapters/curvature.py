"""Curvature providers: which matrix a product multiplies by, whatever computes the derivatives.

A model maps parameters to outputs z, a loss maps outputs and targets to one number per sample.
With the Jacobian J of the outputs, given as two products ``jvp(v) = J v`` and ``vjp(u) = J^T u``,
every provider but the exact Hessian is J^T M J with a matrix M that acts on the outputs sample by
sample:

=================== ==============================================================
``gauss-newton``     M is the Hessian of the loss in the outputs
``fisher``           M = r r^T, r the loss gradient at labels drawn from the model
``empirical-fisher`` M = r r^T, r the loss gradient at the true labels (the paper's F)
=================== ==============================================================

The outputs of a sample are all but the first axis. Losses are weighted by `w`, one weight per
sample (zero for padding). Products are sums over samples: the caller divides by their number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ksdmin._problem.arrays import Array, Small, Space, namespace_of, to_host

Product = Callable[[Array], Array]

TINY = float(np.finfo(np.float32).tiny)
PROVIDERS = ("hessian", "gauss-newton", "fisher", "empirical-fisher")


def gauss_newton(jvp: Product, vjp: Product, loss_hessian: Product) -> Product:
    """The product v -> J^T H_L J v (Schraudolph 2002; Algorithm 1 of the paper for a net)."""
    return lambda v: vjp(loss_hessian(jvp(v)))


def fisher(jvp: Product, vjp: Product, r: Array) -> Product:
    """The product v -> sum_i g_i g_i^T v with g_i = J_i^T r_i, never forming a g_i."""
    return gauss_newton(jvp, vjp, outer_product(r))


def outer_product(r: Array) -> Product:
    """The product u -> r_i (r_i . u_i), sample by sample."""
    return lambda u: r * _column(_dot(r, u), r)


# The Hessians of common losses in the outputs, in closed form: (z, targets, w) -> u -> H u


def squared_error(z: Array, y: Array, w: Array, scale: float = 2.0) -> Product:
    """The loss is (scale / 2) |z - y|^2: a multiple of the identity."""
    weight = _column(scale * w, z)
    return lambda u: weight * u


def softmax_cross_entropy(z: Array, y: Array, w: Array, scale: float = 1.0) -> Product:
    """The loss is scale * -log softmax(z)[y], classes along axis 1: diag(p) - p p^T."""
    xp = namespace_of(z)
    p = xp.exp(z - xp.max(z, axis=1, keepdims=True))
    p = p / xp.sum(p, axis=1, keepdims=True)
    weight = _column(scale * w, z)

    def times(u: Array) -> Array:
        pu = p * u
        return weight * (pu - p * xp.sum(pu, axis=1, keepdims=True))

    return times


def binary_cross_entropy(z: Array, y: Array, w: Array, scale: float = 1.0) -> Product:
    """The loss is scale * the cross-entropy of sigmoid(z), summed over outputs: p (1 - p)."""
    xp = namespace_of(z)
    odds = xp.exp(-xp.abs(z))  # of the less likely label: p (1 - p) is the same for z and -z
    diagonal = _column(scale * w, z) * (odds / (1 + odds) ** 2)
    return lambda u: diagonal * u


def poisson(z: Array, y: Array, w: Array, scale: float = 1.0) -> Product:
    """The loss is scale * (exp(z) - y z): the rate exp(z)."""
    diagonal = _column(scale * w, z) * namespace_of(z).exp(z)
    return lambda u: diagonal * u


def gaussian(z: Array, y: tuple[Array, Array], w: Array, scale: float = 1.0) -> Product:
    """The loss is scale * (z - y)^2 / (2 variance), `y` = (targets, variance): 1 / variance."""
    diagonal = _column(scale * w, z) / y[1]
    return lambda u: diagonal * u


# Relative difference between a diagonal matrix and its row sums: anything less is rounding, and a
# loss that couples outputs has far more.
DIAGONAL_TOL = 1e-4


def off_diagonal(hessian: Product, z: Array) -> Array:
    """The relative size of the off-diagonal part of a matrix on the outputs.

    It is at most `DIAGONAL_TOL` if the loss of a sample is a sum over its outputs.
    """
    xp = namespace_of(z)
    u = xp.reshape(xp.cos(xp.cumsum(xp.reshape(xp.ones_like(z), (-1,)), 0)), z.shape)
    expected = hessian(u)
    difference = u * hessian(xp.ones_like(u)) - expected
    return xp.sqrt(xp.sum(difference**2) / (xp.sum(expected**2) + TINY))


def _dot(a: Array, b: Array) -> Array:
    """Sample by sample: the sum of a * b over all axes but the first."""
    xp = namespace_of(a)
    product = a * b
    axes = tuple(range(1, product.ndim))
    return xp.sum(product, axis=axes) if axes else product


def _column(w: Array, like: Array) -> Array:
    """One number per sample, shaped so that it multiplies the outputs `like`."""
    return namespace_of(w).reshape(w, (-1,) + (1,) * (like.ndim - 1))


def check_provider(curvature: Any) -> None:
    """Raise if it is neither the name of a provider nor a callable."""
    if curvature is None or callable(curvature):
        return
    if not isinstance(curvature, str) or curvature not in PROVIDERS:
        raise ValueError(
            f"curvature={curvature!r}: expected one of {', '.join(map(repr, PROVIDERS))}, or a "
            "callable (x, idx) -> product"
        )


# Whether a model is linear in its parameters, judged from its outputs along a line


# Second difference relative to the first, along a line: anything less is rounding (float32 has
# 1e-7, TF32 5e-4), and a net has far more.
LINEARITY_TOL = 1e-3


def is_nonlinear(outputs: Callable[[Array], Array], x: Array) -> bool:
    """Whether a model's outputs are nonlinear in its parameters around `x`.

    They are compared at three points on a random line, as far from `x` as `x` is from zero.
    """
    space = Space(x)
    length = space.norm(x) or 1.0
    direction = np.random.default_rng(0).standard_normal(space.n)
    step = space.to_device(direction * (length / np.linalg.norm(direction)))
    behind, middle, ahead = (to_host(outputs(x + t * step)) for t in (-1.0, 0.0, 1.0))
    return is_bent(behind, middle, ahead, 0.5)


def is_bent(start: Small, between: Small, end: Small, share: float, rounding: float = 0.0) -> bool:
    """Whether outputs between two points, at a share of the way, are off the line between theirs.

    Deviations below `rounding` times the outputs do not count. Outputs that overflow are bent.
    """
    line = (1 - share) * start + share * end
    deviation, change = (np.abs(u).max(initial=0.0) for u in (between - line, end - start))
    size = np.abs(between).max(initial=0.0)
    straight = deviation <= LINEARITY_TOL * share * change + rounding * size
    return not (straight and np.isfinite(change))


# A loss per sample, with its derivatives in the outputs in closed form, if known


def unit_scale(z: Any) -> float:
    """The scale of a loss that is the negative log-likelihood itself."""
    return 1.0


@dataclass(frozen=True)
class SampleLoss:
    """A loss as the adapters need it."""

    losses: Callable[[Any, Any], Any]  # (outputs, targets) -> one loss per sample
    # (outputs, targets, weights) -> product with the Hessian in the outputs; None: by autodiff.
    hessian: Callable[[Any, Any, Any], Product] | None = None
    # (outputs, targets, generator) -> targets drawn from the model's predictive distribution; None:
    # the loss is not a log-likelihood.
    draw: Callable[[Any, Any, Any], Any] | None = None
    # targets -> the weight of each sample in the loss's own mean; None: all the same.
    sample_weights: Callable[[Any], Any] | None = None
    # outputs -> the factor between the loss and the negative log-likelihood: 1 / elements for a
    # mean over the elements of a sample.
    likelihood_scale: Callable[[Any], float] = unit_scale
    # Whether the Hessian in the outputs is diagonal; None: not known.
    has_diagonal_hessian: bool | None = None
