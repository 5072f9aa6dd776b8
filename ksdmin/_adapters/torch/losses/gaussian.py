"""GaussianNLLLoss, of a mean with a given variance, or of a model that returns both.

Torch's own function reads every variance on the host, to refuse negative ones, which a CUDA graph
cannot: here a negative variance makes the loss NaN.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ksdmin._adapters import curvature as _curvature
from ksdmin._adapters.curvature import Product, SampleLoss, unit_scale
from ksdmin._adapters.torch.losses.elements import (
    Scale,
    check_elements,
    normal,
    over_elements,
    per_element,
)
from ksdmin._adapters.torch.model_calls import SeveralTensors

# The outputs are the mean, the targets pairs (y, variance)


def gaussian(loss: Any, mean: bool) -> SampleLoss:
    """The loss of a mean."""
    scale = per_element if mean else unit_scale
    return SampleLoss(
        losses=partial(_losses, loss, mean),
        hessian=partial(_hessian, loss, scale),
        draw=partial(_draw, loss),
        likelihood_scale=scale,
    )


def _losses(loss: Any, mean: bool, z: Tensor, y: Any) -> Tensor:
    if not isinstance(y, (tuple, list)) or len(y) != 2:
        raise TypeError(
            "GaussianNLLLoss: the model returned one tensor, so the targets must be a pair "
            "(y, variance); or let the model return a pair (mean, variance)"
        )
    return _log_likelihoods(loss, mean, z, y[0], _variance(loss, z, y[1]))


def _log_likelihoods(loss: Any, mean: bool, z: Tensor, target: Tensor, v: Tensor) -> Tensor:
    check_elements(loss, z, target)
    constant = math.log(2 * math.pi) if loss.full else 0.0
    return over_elements(((z - target).square() / v + v.log() + constant) / 2, mean)


def _columns(z: Tensor, given: Tensor) -> Tensor:
    """The variances, with one axis more where one variance is that of all entries along it."""
    return given.unsqueeze(-1) if given.shape == z.shape[:-1] else given


def _variance(loss: Any, z: Tensor, given: Tensor) -> Tensor:
    """The given variances, as torch clamps them; NaN for a negative one, which torch refuses."""
    v = _columns(z, given)
    return v.clamp(loss.eps).masked_fill(v < 0, math.nan)


def _hessian(loss: Any, scale: Scale, z: Tensor, y: tuple[Tensor, Tensor], w: Tensor) -> Product:
    v = _variance(loss, z, y[1])
    return _curvature.gaussian(z, (y[0], v), w, scale=scale(z))


def _draw(loss: Any, z: Tensor, y: tuple[Tensor, Tensor], generator: torch.Generator) -> Any:
    return z + normal(z, generator) * _variance(loss, z, y[1]).sqrt(), y[1]


# The outputs are pairs (mean, variance), the targets y


def gaussian_of_pair(loss: Any, mean: bool, several: SeveralTensors) -> SampleLoss:
    """The loss of a mean and a variance.

    Its Hessian in the variance can be negative: in its place is the Fisher information of the
    normal distribution, 1 / v in the mean and 1 / (2 v^2) in the variance, which is its expectation
    over y.
    """
    _check_shapes(*several.shapes)
    scale = 1 / several.sizes[0] if mean else 1.0
    return SampleLoss(
        losses=partial(_pair_losses, loss, mean, several),
        hessian=partial(_pair_information, loss, scale, several),
        draw=partial(_pair_draw, loss, several),
        likelihood_scale=partial(_constant, scale),
    )


def _constant(scale: float, z: Tensor) -> float:
    return scale


def _check_shapes(mean: Any, variance: Any) -> None:
    """One variance for each entry of the mean, or for all entries along the last axis."""
    along_last = (mean[:-1], (*mean[:-1], 1)) if mean else ()
    if variance not in (mean, *along_last):
        raise ValueError(
            f"GaussianNLLLoss: the mean of a sample has shape {mean}, its variance {variance}: "
            "expected the same shape, or one variance for the entries along the last axis"
        )


def check_variance(several: SeveralTensors, z: Tensor) -> None:
    """Refuse a model whose variances are negative."""
    _, given = several.unpack(z)
    if bool((given < 0).any()):
        raise ValueError(
            "GaussianNLLLoss: the second output of the model, the variance, is negative for some "
            "samples: let it end in softplus or exp"
        )


def _pair(loss: Any, several: SeveralTensors, z: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the variance, which is at least eps.

    As in torch, the derivatives pay no heed to that bound.
    """
    mean, given = several.unpack(z)
    given = _columns(mean, given)
    v = torch.where(given < loss.eps, loss.eps + (given - given.detach()), given)
    # (masked_fill, as torch.where would copy the number to the device, which a graph cannot)
    return mean, v.masked_fill(given < 0, torch.nan)


def _pair_losses(loss: Any, mean: bool, several: SeveralTensors, z: Tensor, y: Any) -> Tensor:
    if not isinstance(y, Tensor):
        raise TypeError(
            "GaussianNLLLoss: the model returned a pair (mean, variance), so the targets must be "
            f"one tensor, not a {type(y).__name__}"
        )
    centre, v = _pair(loss, several, z)
    return _log_likelihoods(loss, mean, centre, y, v)


def _pair_information(
    loss: Any, scale: float, several: SeveralTensors, z: Tensor, y: Tensor, w: Tensor
) -> Product:
    mean, v = _pair(loss, several, z)
    rows = z.shape[0]
    shared = several.sizes[0] // several.sizes[1]  # entries that have one variance
    in_mean = (1 / v).expand_as(mean).reshape(rows, -1)
    in_variance = (shared / (2 * v.square())).reshape(rows, -1)
    diagonal = torch.cat([in_mean, in_variance], 1) * (scale * w)[:, None]
    return lambda u: diagonal * u


def _pair_draw(
    loss: Any, several: SeveralTensors, z: Tensor, y: Tensor, generator: torch.Generator
) -> Tensor:
    mean, v = _pair(loss, several, z)
    drawn: Tensor = mean + normal(mean, generator) * v.sqrt()
    return drawn
