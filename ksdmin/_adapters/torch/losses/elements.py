"""Losses as means or sums over the elements of a sample."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Scale = Callable[[Tensor], float]
"""Outputs -> the factor between the loss and the negative log-likelihood."""


def over_elements(losses: Tensor, mean: bool) -> Tensor:
    """The mean or the sum of each sample's losses."""
    flat = losses.reshape(losses.shape[0], -1)
    return flat.mean(1) if mean else flat.sum(1)


def check_elements(loss: nn.Module, z: Tensor, y: Any) -> None:
    """Refuse what torch would broadcast: then a loss depends on other samples than its own."""
    name = type(loss).__name__
    if y.shape != z.shape:
        columns = tuple(z.shape) == (*y.shape, 1)
        mend = ": give the targets as y[:, None]" if columns and y.ndim == 1 else ""
        raise ValueError(
            f"{name}: the outputs have shape {tuple(z.shape)}, the targets {tuple(y.shape)}; they "
            f"must be the same{mend}"
        )
    for kind in ("weight", "pos_weight"):
        weight = getattr(loss, kind, None)
        if weight is not None and weight.ndim == z.ndim and weight.shape[0] != 1:
            raise ValueError(
                f"{name}: {kind} has an entry for each sample of one batch. Give the weights of "
                "samples with the targets, to a callable that returns one loss per sample"
            )


def as_numbers(loss: nn.Module, z: Tensor, y: Tensor) -> Tensor:
    """Targets that are whole numbers or bools, in the dtype of the outputs."""
    if y.is_floating_point() or y.is_complex():
        return y
    if y.dtype == torch.bool and isinstance(loss, nn.SoftMarginLoss):
        raise TypeError("SoftMarginLoss: the targets are bools; expected 1 and -1: pass 2 * y - 1")
    return y.to(z.dtype)


def as_labels(y: Tensor) -> Tensor:
    """Class labels in the dtype that torch takes; probabilities of classes as they are."""
    return y if y.is_floating_point() else y.long()


def per_element(z: Tensor) -> float:
    """Each entry of the outputs has a target."""
    return 1 / math.prod(z.shape[1:])


def per_position(z: Tensor) -> float:
    """Classes lie along axis 1; each position has a label."""
    return 1 / math.prod(z.shape[2:])


def normal(z: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal numbers in the shape of `z`."""
    return torch.randn(z.shape, generator=generator, dtype=z.dtype, device=z.device)
