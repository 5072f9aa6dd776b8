"""Functions r(params, batch) of autograd and jax as models with outputs and a squared loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ksdmin._adapters import curvature as _curvature
from ksdmin._adapters.arguments import Block, check_rows
from ksdmin._adapters.curvature import Product, SampleLoss
from ksdmin._adapters.functional.losses import RandomGenerator
from ksdmin._adapters.trees import tree_leaves
from ksdmin._problem.arrays import Array


def as_model(block: Block) -> Callable[[Any, Any], Array]:
    """The residuals as outputs, one row per sample; a function of no samples gives one row."""

    def of_batch(params: Any, batch: Any) -> Array:
        r = block.residuals(params, batch)
        check_rows(_shape(r), _rows(batch))
        return r

    def of_none(params: Any, batch: Any) -> Array:
        r = block.residuals(params)
        check_rows(_shape(r), None)
        return r[None]

    return of_none if block.data is None else of_batch


def as_data(block: Block) -> tuple[Any, Array]:
    """The samples of a block, and the targets of the residuals: zeros."""
    data = np.zeros(1) if block.data is None else block.data
    return data, np.zeros(_rows(data), dtype=np.float32)


def squared_residuals(xp: Any) -> SampleLoss:
    """The mean of the squared residuals of a sample; its targets are zeros, one per sample."""
    return SampleLoss(partial(_losses, xp), _hessian, _draw, has_diagonal_hessian=True)


def _losses(xp: Any, z: Array, y: Array) -> Array:
    """Against the zeros of the samples; or, for "fisher", targets drawn like the residuals."""
    squares = z**2 if y.shape != z.shape else (z - y) ** 2
    return xp.mean(squares, axis=tuple(range(1, z.ndim))) if z.ndim > 1 else squares


def _hessian(z: Array, y: Array, w: Array) -> Product:
    return _curvature.squared_error(z, y, w, scale=2 / _elements(z))


def _draw(z: Array, y: Array, rng: RandomGenerator) -> Array:
    deviation = math.sqrt(_elements(z) / 2)  # of exp(-mean (z - y)^2)
    return (z + rng.standard_normal(z.shape) * deviation).astype(z.dtype)


def _elements(z: Array) -> int:
    return math.prod(z.shape[1:])


def _shape(r: Any) -> tuple[int, ...]:
    if not hasattr(r, "shape"):
        raise TypeError(f"r returned {type(r).__name__}: expected one array of residuals")
    return tuple(r.shape)


def _rows(batch: Any) -> int:
    arrays = tree_leaves(batch)
    if not arrays or not getattr(arrays[0], "shape", ()):
        raise TypeError("data: expected arrays with one row per sample, or a tuple or dict of them")
    return int(arrays[0].shape[0])
