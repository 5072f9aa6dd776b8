"""What a model must be for its loss to be a sum over samples."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

_RANDOM = (nn.modules.dropout._DropoutNd, nn.RReLU)
_SQUASHING = {
    nn.BCELoss: ((nn.Sigmoid,), "BCEWithLogitsLoss"),
    nn.NLLLoss: ((nn.LogSoftmax,), "CrossEntropyLoss"),
}


def check_model(model: nn.Module, loss: Any) -> None:
    """Refuse a model whose loss is no sum over samples; warn of a nonlinearity misplaced."""
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.training:
            raise ValueError(
                f"{type(module).__name__} {name!r} is in train mode: the loss of a sample then "
                "depends on the others, and is no term of a sum. Put it (or the model) into eval "
                "mode: model.eval()"
            )
    kinds, better = _SQUASHING.get(type(loss), ((), ""))
    last = list(model.modules())[-1]
    if isinstance(last, kinds):
        warnings.warn(
            f"The model ends in {type(last).__name__} under {type(loss).__name__}: the "
            "Gauss-Newton matrix then leaves out that nonlinearity's curvature, which the paper "
            f"counts to the error function. Drop the layer and use {better}.",
            UserWarning,
            stacklevel=3,
        )


def is_random(model: nn.Module) -> bool:
    """Whether the model draws random numbers (dropout in train mode)."""
    return any(isinstance(module, _RANDOM) and module.training for module in model.modules())


def seed_of(seed: int, idx: Any) -> int:
    """A seed that depends on the set of samples.

    So dropout has the same masks in every value, gradient and product on a set, and others on the
    next set.
    """
    what = b"" if isinstance(idx, slice) else idx.cpu().numpy().tobytes()
    digest = hashlib.blake2b(what, digest_size=6, key=seed.to_bytes(8, "little")).digest()
    return int.from_bytes(digest, "little")


@contextmanager
def frozen_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's global generators start from `seed`; afterwards they are as they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def check_repeats(problem: Any, model: nn.Module) -> None:
    """Refuse a model that gives another value for the same parameters and samples."""
    few = torch.arange(min(8, problem.subsets.n), device=problem.x0.device)
    first, second = problem.value(problem.x0, few), problem.value(problem.x0, few)
    if abs(first - second) > 1e-3 * abs(first):
        raise ValueError(
            f"{type(model).__name__} is not deterministic: the same parameters and samples gave "
            f"the loss {first!r}, then {second!r}. Take its randomness out (eval mode), or draw "
            "it from torch's global generator, which is frozen for each set"
        )
