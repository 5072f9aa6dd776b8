"""A loss per sample, with the derivatives in the outputs that the adapters know in closed form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ksdmin._adapters.curvature import Product


def unit_scale(z: Any) -> float:
    """The scale of a loss that is the negative log-likelihood itself."""
    return 1.0


@dataclass(frozen=True)
class SampleLoss:
    """A loss as the adapters need it.

    Attributes
    ----------
    losses : callable
        (outputs, targets) -> one loss per sample.
    hessian : callable or None
        (outputs, targets, weights) -> product with the Hessian in the outputs; None: by autodiff.
    draw : callable or None
        (outputs, targets, generator) -> targets drawn from the model's predictive distribution;
        None: the loss is not a log-likelihood.
    sample_weights : callable or None
        targets -> the weight of each sample in the loss's own mean; None: all the same.
    likelihood_scale : callable
        outputs -> the factor between the loss and the negative log-likelihood: 1 / elements for a
        mean over the elements of a sample.
    has_diagonal_hessian : bool or None
        Whether the Hessian in the outputs is diagonal; None: not known.
    """

    losses: Callable[[Any, Any], Any]
    hessian: Callable[[Any, Any, Any], Product] | None = None
    draw: Callable[[Any, Any, Any], Any] | None = None
    sample_weights: Callable[[Any], Any] | None = None
    likelihood_scale: Callable[[Any], float] = unit_scale
    has_diagonal_hessian: bool | None = None
