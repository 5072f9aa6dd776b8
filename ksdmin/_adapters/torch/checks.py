"""What a model must be for its loss to be a sum over samples."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ksdmin._adapters.torch.model import FlatModel
from ksdmin._adapters.torch.random import states

_SQUASHING: dict[type, tuple[str, str, str]] = {
    nn.BCELoss: ("SigmoidBackward", "a sigmoid", "BCEWithLogitsLoss"),
    nn.NLLLoss: ("LogSoftmaxBackward", "a log-softmax", "CrossEntropyLoss"),
}
_RESHAPING = ("View", "Reshape", "UnsafeView", "Squeeze", "Unsqueeze", "Select", "Slice", "ToCopy")
_TOLERANCE = {"highest": 1e-5, "high": 1e-3, "bfloat16": 1e-1}


def check_model(model: nn.Module) -> None:
    """Refuse modules that no sum of losses can have, by name and with the way out."""
    for name, module in model.named_modules():
        reason = _refusal(module)
        if reason:
            raise ValueError(f"{type(module).__name__} {name!r} {reason}")


def _refusal(module: nn.Module) -> str | None:
    if isinstance(module, _BatchNorm):
        depends = "the loss of a sample then depends on the others, and is no term of a sum."
        if module.running_mean is None:
            return (
                f"keeps no running statistics and takes those of the batch: {depends} Make it "
                "with track_running_stats=True, and put it into eval mode"
            )
        if module.training:
            return f"is in train mode: {depends} Put it (or the model) into eval mode: model.eval()"
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        if module.max_norm is not None:
            return "rescales its weight (max_norm) in every forward pass: use l2 instead"
        if module.sparse:
            return "makes sparse gradients, which a flat vector cannot hold: set its sparse=False"
    return None


def check_pass(model: FlatModel, inputs: Any) -> Tensor:
    """The outputs for a few samples, of a model that changes nothing but torch's generators.

    Notes in ``model.random`` whether it draws numbers from these.
    """
    buffers = {name: buffer.clone() for name, buffer in model.model.named_buffers()}
    before = states(model.device)
    z = model(model.leaves(model.x0), inputs)
    after = states(model.device)
    model.random = not all(map(torch.equal, before, after))
    for name, buffer in model.model.named_buffers():
        if name not in buffers or not _same(buffer, buffers[name]):
            raise ValueError(
                f"{type(model.model).__name__} writes into its buffer {name!r} in the forward "
                "pass, which makes it another function every time. Put it (or the module that "
                "does so) into eval mode: model.eval()"
            )
    return z


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | (a != a) & (b != b)).all())


def warn_of_squashing(z: Tensor, loss: Any, stacklevel: int) -> None:
    """Warn of a nonlinearity in the model that belongs to the loss."""
    kind, ending, better = _SQUASHING.get(type(loss), ("", "", ""))
    node = z.grad_fn
    while node is not None and node.name().startswith(_RESHAPING):
        node = node.next_functions[0][0]
    if kind and node is not None and node.name().startswith(kind):
        warnings.warn(
            f"The model ends in {ending} under {type(loss).__name__}: the Gauss-Newton matrix "
            "then leaves out that nonlinearity's curvature, which the paper counts to the error "
            f"function. Drop it from the model and use {better}.",
            UserWarning,
            stacklevel=stacklevel + 1,
        )


def check_values(problem: Any, model: FlatModel) -> None:
    """Refuse a model whose values are not those of a function, or no mean over samples."""
    few, name = torch.arange(min(8, problem.subsets.n)), type(model.model).__name__
    tolerance = _TOLERANCE[model.precision]
    first, second = problem.value(problem.x0, few), problem.value(problem.x0, few)
    if abs(first - second) > tolerance * abs(first):
        raise ValueError(
            f"{name} is not deterministic, or its data are not: the same parameters and samples "
            f"gave the loss {first!r}, then {second!r}. Take the randomness out (eval mode), or "
            "let the model draw it from torch's global generators, which are frozen for each set"
        )
    half = len(few) // 2
    if model.random or half < 2:
        return
    parts = few[:half], few[half:]
    apart = sum(len(part) / len(few) * problem.value(problem.x0, part) for part in parts)
    if abs(first - apart) > tolerance * max(abs(first), abs(apart)):
        raise ValueError(
            f"{name} mixes its samples: the mean loss of {len(few)} is {first!r}, but {apart!r} "
            "if computed in two batches. The samples must lie along the first axis "
            "(batch_first=True), and none may look at another"
        )
