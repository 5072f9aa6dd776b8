"""Torch losses: one number a sample, and the Hessian in the outputs where it has a closed form."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ksdmin import _curvature
from ksdmin._curvature import Product

Hessian = Callable[[Tensor, Any, Tensor], Product]


@dataclass(frozen=True)
class SampleLoss:
    """A loss as the adapter needs it.

    Attributes
    ----------
    losses : callable
        (outputs, targets) -> one loss a sample.
    hessian : callable or None
        (outputs, targets, weights) -> product with the Hessian in the outputs; None: by autodiff.
    draw : callable or None
        (outputs, generator) -> targets drawn from the model; None: it is not a likelihood.
    weigh : callable or None
        targets -> the weight that each sample has in the loss's own mean; None: all the same.
    """

    losses: Callable[[Tensor, Any], Tensor]
    hessian: Hessian | None = None
    draw: Callable[[Tensor, torch.Generator], Any] | None = None
    weigh: Callable[[Any], Tensor] | None = None


def as_sample_loss(loss: Any) -> SampleLoss:
    """A torch loss module, or a callable (outputs, targets) -> one loss a sample."""
    if not isinstance(loss, nn.Module):
        if not callable(loss):
            raise TypeError(
                "loss: expected a torch loss module or a callable(outputs, targets) that returns "
                f"one loss a sample, not {type(loss).__name__}"
            )
        return SampleLoss(partial(_own_losses, loss))
    reduction = getattr(loss, "reduction", None)
    if reduction not in ("mean", "sum", "none"):
        return SampleLoss(partial(_own_losses, loss))
    elementwise: Any = copy.deepcopy(loss)
    elementwise.reduction = "none"
    mean = reduction == "mean"
    known = _KNOWN.get(type(loss))
    if known is None:
        return SampleLoss(partial(_module_losses, elementwise, mean))
    return known(elementwise, mean)


def _own_losses(loss: Callable[[Tensor, Any], Tensor], z: Tensor, y: Any) -> Tensor:
    losses = loss(z, y)
    if losses.shape != z.shape[:1]:
        raise ValueError(
            f"loss returned shape {tuple(losses.shape)} for {z.shape[0]} samples: it must return "
            f"one loss a sample, shape ({z.shape[0]},), not a mean"
        )
    return losses


def _module_losses(elementwise: nn.Module, mean: bool, z: Tensor, y: Any) -> Tensor:
    """The mean (or sum) over the elements of each sample."""
    losses: Tensor = elementwise(z, y)
    flat = losses.reshape(losses.shape[0], -1)
    return flat.mean(1) if mean else flat.sum(1)


def _scaled(hessian: Any, mean: bool, factor: float) -> Hessian:
    """`hessian` for the mean (or sum) over the elements of a sample."""

    def of(z: Tensor, y: Any, w: Tensor) -> Product:
        elements = z[0].numel() if mean else 1
        product: Product = hessian(z, y, w, scale=factor / elements)
        return product

    return of


def _squared_error(loss: nn.Module, mean: bool) -> SampleLoss:
    def draw(z: Tensor, generator: torch.Generator) -> Tensor:
        # exp(-(z - y)^2 / elements): the Gaussian whose likelihood this loss is
        elements = z[0].numel() if mean else 1
        noise = torch.randn(z.shape, generator=generator, dtype=z.dtype, device=z.device)
        drawn: Tensor = z + noise * float(elements / 2) ** 0.5
        return drawn

    return SampleLoss(
        partial(_module_losses, loss, mean), _scaled(_curvature.squared_error, mean, 2.0), draw
    )


def _binary(loss: nn.Module, mean: bool) -> SampleLoss:
    def draw(z: Tensor, generator: torch.Generator) -> Tensor:
        return torch.bernoulli(torch.sigmoid(z), generator=generator)

    plain = loss.weight is None and loss.pos_weight is None
    hessian = _scaled(_curvature.binary_cross_entropy, mean, 1.0) if plain else None
    return SampleLoss(partial(_module_losses, loss, mean), hessian, draw if plain else None)


def _poisson(loss: Any, mean: bool) -> SampleLoss:
    def draw(z: Tensor, generator: torch.Generator) -> Tensor:
        return torch.poisson(torch.exp(z), generator=generator)

    plain = bool(loss.log_input)
    hessian = _scaled(_curvature.poisson, mean, 1.0) if plain else None
    return SampleLoss(partial(_module_losses, loss, mean), hessian, draw if plain else None)


def _cross_entropy(loss: Any, mean: bool) -> SampleLoss:
    """Class weights and ignored targets make torch's mean a weighted one: exact through `weigh`."""

    def draw(z: Tensor, generator: torch.Generator) -> Tensor:
        last = torch.movedim(torch.softmax(z, 1), 1, -1)
        flat = last.reshape(-1, last.shape[-1])
        return torch.multinomial(flat, 1, generator=generator).reshape(last.shape[:-1])

    def hessian(z: Tensor, y: Any, w: Tensor) -> Product:
        positions = z[0, 0].numel() if mean else 1
        product = _curvature.softmax_cross_entropy(z, y, w, scale=1.0 / positions)
        if y.is_floating_point():
            return product
        kept = (y != loss.ignore_index).unsqueeze(1)
        return lambda u: kept * product(u)

    def weigh(y: Tensor) -> Tensor:
        if y.is_floating_point():
            return torch.ones(y.shape[0], device=y.device)
        kept = y != loss.ignore_index
        weight = kept.to(torch.float64)
        if loss.weight is not None:
            weight = weight * loss.weight.to(weight)[torch.where(kept, y, 0)]
        weights: Tensor = weight.reshape(y.shape[0], -1).mean(1)
        return weights

    plain = loss.weight is None
    return SampleLoss(
        partial(_module_losses, loss, mean),
        hessian if plain else None,
        draw if plain else None,
        weigh if mean else None,
    )


_KNOWN: dict[type, Callable[[Any, bool], SampleLoss]] = {
    nn.MSELoss: _squared_error,
    nn.BCEWithLogitsLoss: _binary,
    nn.PoissonNLLLoss: _poisson,
    nn.CrossEntropyLoss: _cross_entropy,
}
