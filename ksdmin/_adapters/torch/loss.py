"""Torch losses: one number a sample, and the Hessian in the outputs where it has a closed form."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ksdmin._adapters import curvature as _curvature
from ksdmin._adapters.curvature import Product
from ksdmin._adapters.flat import SampleLoss

Hessian = Callable[[Tensor, Any, Tensor], Product]
Draw = Callable[[Tensor, Any, torch.Generator], Any]
Share = Callable[[Tensor], float]


def whole(z: Tensor) -> float:
    """A loss that is the negative log-likelihood itself, no share of it."""
    return 1.0


def as_sample_loss(loss: Any) -> SampleLoss:
    """A torch loss module, or a callable (outputs, targets) -> one loss a sample."""
    if not callable(loss):
        raise TypeError(
            "loss: expected a torch loss module or a callable(outputs, targets) that returns "
            f"one loss a sample, not {type(loss).__name__}"
        )
    reduction = getattr(loss, "reduction", None) if isinstance(loss, nn.Module) else None
    if reduction not in ("mean", "sum", "none", "batchmean"):
        return SampleLoss(loss)
    elementwise: Any = copy.deepcopy(loss)
    elementwise.reduction = "none"
    mean = reduction == "mean"
    known = _KNOWN.get(type(loss))
    if known is None:
        return SampleLoss(partial(_module_losses, elementwise, mean))
    return known(elementwise, mean)


def _module_losses(loss: Any, mean: bool, z: Tensor, y: Any) -> Tensor:
    """The mean (or sum) over the elements of each sample."""
    if isinstance(loss, _ELEMENTWISE):
        _check_elements(loss, z, y)
    return _over_elements(loss(z, y), mean)


def _over_elements(losses: Tensor, mean: bool) -> Tensor:
    flat = losses.reshape(losses.shape[0], -1)
    return flat.mean(1) if mean else flat.sum(1)


def _check_elements(loss: nn.Module, z: Tensor, y: Any) -> None:
    """Refuse what torch would broadcast: then a loss is not one of its own sample alone."""
    name = type(loss).__name__
    if y.shape != z.shape:
        raise ValueError(
            f"{name}: the outputs have shape {tuple(z.shape)}, the targets {tuple(y.shape)}; they "
            "must be the same"
        )
    for kind in ("weight", "pos_weight"):
        weight = getattr(loss, kind, None)
        if weight is not None and weight.ndim == z.ndim and weight.shape[0] != 1:
            raise ValueError(
                f"{name}: {kind} has an entry for each sample of one batch. Give the weights of "
                "samples with the targets, to a callable that returns one loss a sample"
            )


def _per_element(mean: bool) -> Share:
    return (lambda z: 1 / math.prod(z.shape[1:])) if mean else whole


def _scaled(hessian: Any, share: Share, factor: float = 1.0) -> Hessian:
    """`hessian` for that share of the loss."""

    def of(z: Tensor, y: Any, w: Tensor) -> Product:
        product: Product = hessian(z, y, w, scale=factor * share(z))
        return product

    return of


def _normal(z: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(z.shape, generator=generator, dtype=z.dtype, device=z.device)


def _likelihood(
    loss: nn.Module,
    mean: bool,
    hessian: Any,
    draw: Draw,
    *,
    factor: float = 1.0,
    plain: bool = True,
) -> SampleLoss:
    """An elementwise loss that is a likelihood; `plain`: not weighted, nor of another link."""
    share = _per_element(mean)
    return SampleLoss(
        losses=partial(_module_losses, loss, mean),
        hessian=_scaled(hessian, share, factor) if plain else None,
        draw=draw if plain else None,
        share=share,
    )


def _squared_error(loss: nn.Module, mean: bool) -> SampleLoss:
    def draw(z: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        drawn: Tensor = z + _normal(z, generator) * 0.5**0.5  # exp(-(z - y)^2) has variance 1/2
        return drawn

    return _likelihood(loss, mean, _curvature.squared_error, draw, factor=2.0)


def _gaussian(loss: Any, mean: bool) -> SampleLoss:
    """The targets are pairs (y, variance). Written out, as torch's own looks at every variance."""

    def variance(z: Tensor, given: Tensor) -> Tensor:
        return (given.unsqueeze(-1) if given.shape == z.shape[:-1] else given).clamp(loss.eps)

    def losses(z: Tensor, y: tuple[Tensor, Tensor]) -> Tensor:
        target, v = y[0], variance(z, y[1])
        constant = math.log(2 * math.pi) if loss.full else 0.0
        return _over_elements(((z - target).square() / v + v.log() + constant) / 2, mean)

    def hessian(z: Tensor, y: tuple[Tensor, Tensor], w: Tensor) -> Product:
        return _curvature.gaussian(z, (y[0], variance(z, y[1])), w, scale=share(z))

    def draw(z: Tensor, y: tuple[Tensor, Tensor], generator: torch.Generator) -> Any:
        return z + _normal(z, generator) * variance(z, y[1]).sqrt(), y[1]

    share = _per_element(mean)
    return SampleLoss(losses, hessian, draw, share=share)


def _binary(loss: nn.Module, mean: bool) -> SampleLoss:
    def draw(z: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        return torch.bernoulli(torch.sigmoid(z), generator=generator)

    plain = loss.weight is None and loss.pos_weight is None
    return _likelihood(loss, mean, _curvature.binary_cross_entropy, draw, plain=plain)


def _poisson(loss: Any, mean: bool) -> SampleLoss:
    def draw(z: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        return torch.poisson(torch.exp(z), generator=generator)

    return _likelihood(loss, mean, _curvature.poisson, draw, plain=bool(loss.log_input))


def _cross_entropy(loss: Any, mean: bool) -> SampleLoss:
    """With q the (smoothed, weighted) target: sum(q) times that of a plain label."""
    smoothing = loss.label_smoothing

    def mass(z: Tensor, y: Tensor) -> Tensor:
        """The sum of q over the classes, for each position of each sample."""
        weight = z.new_ones(z.shape[1]) if loss.weight is None else loss.weight.to(z)
        soft = y.is_floating_point()
        kept = torch.ones_like(y[:, 0]) if soft else y != loss.ignore_index
        of_label = torch.movedim(y, 1, -1) @ weight if soft else weight[torch.where(kept, y, 0)]
        q: Tensor = kept * (of_label * (1 - smoothing) + weight.mean() * smoothing)
        return q

    def hessian(z: Tensor, y: Tensor, w: Tensor) -> Product:
        product = _curvature.softmax_cross_entropy(z, y, w, scale=share(z))
        factor = mass(z, y).unsqueeze(1)
        return lambda u: factor * product(u)

    share = _per_position(mean)
    return SampleLoss(
        losses=partial(_module_losses, loss, mean),
        hessian=hessian,
        draw=_draw_class(loss, torch.softmax) if not smoothing else None,
        weigh=_class_weights(loss) if mean else None,
        share=share,
    )


def _log_likelihood(loss: Any, mean: bool) -> SampleLoss:
    return SampleLoss(
        losses=partial(_module_losses, loss, mean),
        draw=_draw_class(loss, lambda z, axis: torch.exp(z)),
        weigh=_class_weights(loss) if mean else None,
        share=_per_position(mean),
    )


def _per_position(mean: bool) -> Share:
    """Classes lie along axis 1; each position has a label."""
    return (lambda z: 1 / math.prod(z.shape[2:])) if mean else whole


def _draw_class(loss: Any, probabilities: Callable[[Tensor, int], Tensor]) -> Draw | None:
    if loss.weight is not None:
        return None

    def draw(z: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        p = torch.movedim(probabilities(z, 1), 1, -1)
        flat = torch.multinomial(p.reshape(-1, p.shape[-1]), 1, generator=generator)
        drawn = flat.reshape(p.shape[:-1])
        if y.is_floating_point():
            return drawn
        return torch.where(y == loss.ignore_index, y, drawn)

    return draw


def _class_weights(loss: Any) -> Callable[[Tensor], Tensor]:
    """Torch's mean is weighted, by class weights, and by zero for ignored targets."""

    def weigh(y: Tensor) -> Tensor:
        if y.is_floating_point():  # soft labels: torch divides by their number
            return torch.ones(y.shape[0], dtype=torch.float64, device=y.device)
        kept = y != loss.ignore_index
        weight = kept.to(torch.float64)
        if loss.weight is not None:
            weight = weight * loss.weight.to(weight)[torch.where(kept, y, 0)]
        return _over_elements(weight, mean=True)

    return weigh


_ELEMENTWISE = (
    nn.MSELoss,
    nn.L1Loss,
    nn.SmoothL1Loss,
    nn.HuberLoss,
    nn.BCELoss,
    nn.BCEWithLogitsLoss,
    nn.PoissonNLLLoss,
    nn.SoftMarginLoss,
    nn.KLDivLoss,
)
_KNOWN: dict[type, Callable[[Any, bool], SampleLoss]] = {
    nn.MSELoss: _squared_error,
    nn.GaussianNLLLoss: _gaussian,
    nn.BCEWithLogitsLoss: _binary,
    nn.PoissonNLLLoss: _poisson,
    nn.CrossEntropyLoss: _cross_entropy,
    nn.NLLLoss: _log_likelihood,
}
