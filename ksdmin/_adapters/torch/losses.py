"""Torch losses: one number per sample, with the Hessian in the outputs where it is known.

All functions are those of the module, or partial applications of them: so a problem can be pickled.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ksdmin._adapters import curvature as _curvature
from ksdmin._adapters.curvature import Product, SampleLoss, unit_scale
from ksdmin._adapters.torch.model_calls import CHOOSE, SeveralTensors, description

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


# GaussianNLLLoss, of a mean with a given variance, or of a model that returns both. Torch's own
# function reads every variance on the host, to refuse negative ones, which a CUDA graph cannot:
# here a negative variance makes the loss NaN


def gaussian(loss: Any, mean: bool, several: SeveralTensors | None = None) -> SampleLoss:
    """The outputs are the mean, the targets pairs (y, variance); or the outputs are both.

    The Hessian in the variance can be negative: in its place is the Fisher information of the
    normal distribution, 1 / v in the mean and 1 / (2 v^2) in the variance, which is its expectation
    over y.
    """
    if several is not None:
        mean_shape, variance = several.shapes
        # one variance for each entry of the mean, or for all entries along the last axis
        along_last = (mean_shape[:-1], (*mean_shape[:-1], 1)) if mean_shape else ()
        if variance not in (mean_shape, *along_last):
            raise ValueError(
                f"GaussianNLLLoss: the mean of a sample has shape {mean_shape}, its variance "
                f"{variance}: expected the same shape, or one variance for the entries along the "
                "last axis"
            )
    scale = partial(_of_mean, several) if mean else unit_scale
    return SampleLoss(
        losses=partial(_log_likelihoods, loss, mean, several),
        hessian=partial(_information, loss, scale, several),
        draw=partial(_draw, loss, several),
        likelihood_scale=scale,
    )


def _of_mean(several: SeveralTensors | None, z: Tensor) -> float:
    return per_element(z) if several is None else 1 / several.sizes[0]


def check_variance(several: SeveralTensors, z: Tensor) -> None:
    """Refuse a model whose variances are negative."""
    _, given = several.unpack(z)
    if bool((given < 0).any()):
        raise ValueError(
            "GaussianNLLLoss: the second output of the model, the variance, is negative for some "
            "samples: let it end in softplus or exp"
        )


def _normal(
    loss: Any, several: SeveralTensors | None, z: Tensor, y: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """The mean, the target, and the variance, which is at least eps, and NaN where negative.

    As in torch, the derivatives pay no heed to that bound.
    """
    if several is None:
        if not isinstance(y, (tuple, list)) or len(y) != 2:
            raise TypeError(
                "GaussianNLLLoss: the model returned one tensor, so the targets must be a pair "
                "(y, variance); or let the model return a pair (mean, variance)"
            )
        mean, (target, given) = z, y
    else:
        if not isinstance(y, Tensor):
            raise TypeError(
                "GaussianNLLLoss: the model returned a pair (mean, variance), so the targets must "
                f"be one tensor, not a {type(y).__name__}"
            )
        (mean, given), target = several.unpack(z), y
    # one axis more where one variance is that of all entries along it
    given = given.unsqueeze(-1) if given.shape == mean.shape[:-1] else given
    v = torch.where(given < loss.eps, loss.eps + (given - given.detach()), given)
    # (masked_fill, as torch.where would copy the number to the device, which a graph cannot)
    return mean, target, v.masked_fill(given < 0, math.nan)


def _log_likelihoods(
    loss: Any, mean: bool, several: SeveralTensors | None, z: Tensor, y: Any
) -> Tensor:
    centre, target, v = _normal(loss, several, z, y)
    check_elements(loss, centre, target)
    constant = math.log(2 * math.pi) if loss.full else 0.0
    return over_elements(((centre - target).square() / v + v.log() + constant) / 2, mean)


def _information(
    loss: Any, scale: Scale, several: SeveralTensors | None, z: Tensor, y: Any, w: Tensor
) -> Product:
    mean, target, v = _normal(loss, several, z, y)
    if several is None:
        return _curvature.gaussian(z, (target, v), w, scale=scale(z))
    rows = z.shape[0]
    shared = several.sizes[0] // several.sizes[1]  # entries that have one variance
    in_mean = (1 / v).expand_as(mean).reshape(rows, -1)
    in_variance = (shared / (2 * v.square())).reshape(rows, -1)
    diagonal = torch.cat([in_mean, in_variance], 1) * (scale(z) * w)[:, None]
    return lambda u: diagonal * u


def _draw(
    loss: Any, several: SeveralTensors | None, z: Tensor, y: Any, generator: torch.Generator
) -> Any:
    mean, _, v = _normal(loss, several, z, y)
    drawn: Tensor = mean + normal(mean, generator) * v.sqrt()
    return (drawn, y[1]) if several is None else drawn


# All losses that torch has, as modules or functions, and those of users


Draw = Callable[[Tensor, Any, torch.Generator], Any]


def as_sample_loss(loss: Any, several: SeveralTensors | None = None) -> SampleLoss:
    """A loss of torch (module or function), or a callable that returns one loss per sample.

    Where a model has `several` outputs, the loss gets them as the model returns them.
    """
    _check_loss(loss)
    loss = as_loss_module(loss)
    if several is not None and type(loss).__module__.startswith("torch.nn."):
        _check_pair(loss, several)
    reduction = getattr(loss, "reduction", None) if isinstance(loss, nn.Module) else None
    if reduction not in ("mean", "sum", "none", "batchmean"):
        return SampleLoss(partial(_own_losses, _of_outputs(loss, several)))
    elementwise: Any = copy.deepcopy(loss)
    elementwise.reduction = "none"
    mean, known = reduction == "mean", _KNOWN.get(type(loss))
    if several is not None and known is gaussian:
        return gaussian(elementwise, mean, several)
    if several is not None or known is None:
        return SampleLoss(partial(_module_losses, _of_outputs(elementwise, several), mean))
    return known(elementwise, mean)


def _of_outputs(loss: Any, several: SeveralTensors | None) -> Any:
    """The loss as a function of the one tensor that the kernels have."""
    return loss if several is None else partial(_unpacked, several, loss)


def _unpacked(several: SeveralTensors, loss: Any, z: Tensor, y: Any) -> Any:
    return loss(several.unpack(z), y)


def _check_pair(loss: Any, several: SeveralTensors) -> None:
    """Refuse several outputs for a loss of torch, but for (mean, variance) of a Gaussian."""
    pair = isinstance(several.example, (tuple, list)) and len(several.shapes) == 2
    if is_gaussian(loss) and pair and None not in several.shapes:
        return
    takes = "one tensor, or a pair (mean, variance)" if is_gaussian(loss) else "one tensor"
    raise TypeError(
        f"the model returned {description(several.example)}, of which {type(loss).__name__} takes "
        f"{takes}. {CHOOSE}; or write a loss of your own, a callable(outputs, targets) that "
        "returns one loss per sample"
    )


def as_loss_module(loss: Any) -> Any:
    """The loss module of one of torch's functions; any other loss as it is."""
    return next((module() for function, module in _FUNCTIONS if loss is function), loss)


def is_gaussian(loss: Any) -> bool:
    """Whether the loss is torch's for a normal distribution."""
    return type(as_loss_module(loss)) is nn.GaussianNLLLoss


def refuse_one_class(z: Tensor, loss: Any) -> None:
    """Raise for a cross-entropy of one class: it does not depend on the model."""
    if type(as_loss_module(loss)) is nn.CrossEntropyLoss and z.ndim > 1 and z.shape[1] == 1:
        raise ValueError(
            f"CrossEntropyLoss: the model returned shape {tuple(z.shape)}, which is one class, "
            "whose probability is always 1. For two classes, take two outputs and labels 0 and 1, "
            "or BCEWithLogitsLoss with targets of the shape of the outputs"
        )


def _check_loss(loss: Any) -> None:
    if isinstance(loss, type):
        name = loss.__name__
        raise TypeError(f"loss: got the class {name}; pass an instance: {name}()")
    if not callable(loss):
        raise TypeError(
            "loss: expected a torch loss module or a callable(outputs, targets) that returns "
            f"one loss per sample, not {type(loss).__name__}"
        )


def _own_losses(loss: Any, z: Tensor, y: Any) -> Tensor:
    """What a user's own loss returns; a column, too, is one loss per sample."""
    losses: Tensor = loss(z, y)
    _check_not_reduced(losses, z)
    return losses[:, 0] if losses.shape == (z.shape[0], 1) else losses


def _check_not_reduced(losses: Any, z: Tensor) -> None:
    if not isinstance(losses, Tensor):
        raise TypeError(
            f"loss returned {type(losses).__name__}: expected a tensor with one loss per sample"
        )
    if losses.shape == ():
        n = z.shape[0]
        raise ValueError(
            f"loss returned one number for {n} samples: it must return one loss per sample, shape "
            f"({n},): drop .mean(), or use reduction='none'"
        )


def _module_losses(loss: Any, mean: bool, z: Tensor, y: Any) -> Tensor:
    """The mean (or sum) over the elements of each sample."""
    if isinstance(loss, _ELEMENTWISE):
        check_elements(loss, z, y)
        if y.dtype == torch.bool and isinstance(loss, nn.SoftMarginLoss):
            raise TypeError(
                "SoftMarginLoss: the targets are bools; expected 1 and -1: pass 2 * y - 1"
            )
        y = y if y.is_floating_point() or y.is_complex() else y.to(z.dtype)
    elif isinstance(loss, _OF_CLASSES):
        y = as_labels(y)
    losses: Tensor = loss(z, y)
    _check_not_reduced(losses, z)
    return over_elements(losses, mean)


# Elementwise losses that are negative log-likelihoods


def _likelihood(loss: Any, mean: bool) -> SampleLoss:
    """Where the loss is weighted, or of another link: no Hessian, no draws."""
    hessian, draw = _LIKELIHOODS[type(loss)]
    weighted = any(getattr(loss, name, None) is not None for name in ("weight", "pos_weight"))
    standard = not weighted and bool(getattr(loss, "log_input", True))
    scale = per_element if mean else unit_scale
    return SampleLoss(
        losses=partial(_module_losses, loss, mean),
        hessian=partial(_scaled, hessian, scale) if standard else None,
        draw=draw if standard else None,
        likelihood_scale=scale,
    )


def _scaled(hessian: Any, scale: Scale, z: Tensor, y: Any, w: Tensor) -> Product:
    factor = 2.0 if hessian is _curvature.squared_error else 1.0
    product: Product = hessian(z, y, w, scale=factor * scale(z))
    return product


def _draw_normal(z: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
    drawn: Tensor = z + normal(z, generator) * 0.5**0.5  # exp(-(z - y)^2) has variance 1/2
    return drawn


def _draw_bernoulli(z: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
    return torch.bernoulli(torch.sigmoid(z), generator=generator)


def _draw_poisson(z: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
    return torch.poisson(torch.exp(z), generator=generator)


# Classes


def _of_classes(loss: Any, mean: bool) -> SampleLoss:
    scale = per_position if mean else unit_scale
    logits = isinstance(loss, nn.CrossEntropyLoss)
    drawable = loss.weight is None and not getattr(loss, "label_smoothing", 0.0)
    return SampleLoss(
        losses=partial(_module_losses, loss, mean),
        hessian=partial(_cross_entropy_hessian, loss, scale) if logits else None,
        draw=partial(_draw_class, loss, logits) if drawable else None,
        sample_weights=partial(_class_weights, loss) if mean else None,
        likelihood_scale=scale,
    )


def _cross_entropy_hessian(loss: Any, scale: Scale, z: Tensor, y: Tensor, w: Tensor) -> Product:
    """With q the (smoothed, weighted) target: sum(q) times that of a plain label."""
    y = as_labels(y)
    product = _curvature.softmax_cross_entropy(z, y, w, scale=scale(z))
    factor = _target_mass(loss, z, y).unsqueeze(1)
    return lambda u: factor * product(u)


def _target_mass(loss: Any, z: Tensor, y: Tensor) -> Tensor:
    """The sum of q over the classes, for each position of each sample."""
    smoothing = loss.label_smoothing
    weight = z.new_ones(z.shape[1]) if loss.weight is None else loss.weight.to(z)
    soft = y.is_floating_point()
    kept = torch.ones_like(y[:, 0]) if soft else y != loss.ignore_index
    of_label = torch.movedim(y, 1, -1) @ weight if soft else weight[torch.where(kept, y, 0)]
    q: Tensor = kept * (of_label * (1 - smoothing) + weight.mean() * smoothing)
    return q


def _draw_class(
    loss: Any, logits: bool, z: Tensor, y: Tensor, generator: torch.Generator
) -> Tensor:
    y, p = as_labels(y), torch.movedim(torch.softmax(z, 1) if logits else torch.exp(z), 1, -1)
    flat = torch.multinomial(p.reshape(-1, p.shape[-1]), 1, generator=generator)
    drawn = flat.reshape(p.shape[:-1])
    if y.is_floating_point():
        return drawn
    return torch.where(y == loss.ignore_index, y, drawn)


def _class_weights(loss: Any, y: Tensor) -> Tensor:
    """Torch's mean is weighted, by class weights, and by zero for ignored targets."""
    if y.is_floating_point():  # soft labels: torch divides by their number
        return torch.ones(y.shape[0], dtype=torch.float64, device=y.device)
    y = as_labels(y)
    kept = y != loss.ignore_index
    weight = kept.to(torch.float64)
    if loss.weight is not None:
        weight = weight * loss.weight.to(weight)[torch.where(kept, y, 0)]
    return over_elements(weight, mean=True)


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
_OF_CLASSES = (nn.CrossEntropyLoss, nn.NLLLoss)
_FUNCTIONS: tuple[tuple[Any, type[nn.Module]], ...] = (
    (functional.cross_entropy, nn.CrossEntropyLoss),
    (functional.nll_loss, nn.NLLLoss),
    (functional.mse_loss, nn.MSELoss),
    (functional.l1_loss, nn.L1Loss),
    (functional.smooth_l1_loss, nn.SmoothL1Loss),
    (functional.huber_loss, nn.HuberLoss),
    (functional.binary_cross_entropy, nn.BCELoss),
    (functional.binary_cross_entropy_with_logits, nn.BCEWithLogitsLoss),
    (functional.poisson_nll_loss, nn.PoissonNLLLoss),
    (functional.gaussian_nll_loss, nn.GaussianNLLLoss),
    (functional.soft_margin_loss, nn.SoftMarginLoss),
)
_LIKELIHOODS: dict[type, tuple[Any, Draw]] = {
    nn.MSELoss: (_curvature.squared_error, _draw_normal),
    nn.BCEWithLogitsLoss: (_curvature.binary_cross_entropy, _draw_bernoulli),
    nn.PoissonNLLLoss: (_curvature.poisson, _draw_poisson),
}
_KNOWN: dict[type, Callable[[Any, bool], SampleLoss]] = {
    **dict.fromkeys(_LIKELIHOODS, _likelihood),
    **dict.fromkeys(_OF_CLASSES, _of_classes),
    nn.GaussianNLLLoss: gaussian,
}
