"""Checks that the loss of a model is a sum over samples, the same in every call."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map

from ksdmin._adapters.torch.flat_model import FlatModel
from ksdmin._adapters.torch.losses import as_loss_module
from ksdmin._adapters.torch.random import generator_states, seeded_generators

# A nonlinearity at the end of the model that belongs to the loss, by the loss: how its node in the
# autograd graph is named, what it is, and the loss that contains it.
_OUTPUT_NONLINEARITIES: dict[type, tuple[str, str, str]] = {
    nn.BCELoss: ("SigmoidBackward", "a sigmoid", "BCEWithLogitsLoss"),
    nn.NLLLoss: ("LogSoftmaxBackward", "a log-softmax", "CrossEntropyLoss"),
}
_RESHAPING = ("View", "Reshape", "UnsafeView", "Squeeze", "Unsqueeze", "Select", "Slice", "ToCopy")
# Relative difference between two values that should be the same: a hundred times the rounding error
# of a mean loss (VALUE_NOISE), as batches of another size may be computed by other kernels.
_VALUE_TOLERANCE = {"highest": 1e-5, "high": 1e-3, "bfloat16": 1e-1}
_CHECK_SAMPLES = 8  # enough for two batches that are larger than one sample, and cheap
_LOSS_SAMPLES = 2  # enough to see what a loss reads


def check_model(model: nn.Module) -> None:
    """Refuse modules with which the loss is no sum over samples; say what to do instead."""
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


def check_forward_pass(model: FlatModel, inputs: Any) -> Tensor:
    """The outputs for a few samples; a model that writes into its buffers is refused.

    Sets ``model.is_random``: whether it draws from torch's global generators.
    """
    buffers = {name: buffer.clone() for name, buffer in model.model.named_buffers()}
    before = generator_states(model.device)
    z = model(model.leaves(model.x0), inputs)
    after = generator_states(model.device)
    model.is_random = not all(map(torch.equal, before, after))
    for name, buffer in model.model.named_buffers():
        if name not in buffers or not _equal(buffer, buffers[name]):
            raise ValueError(
                f"{type(model.model).__name__} writes into its buffer {name!r} in the forward "
                "pass, which makes it another function every time. Put it (or the module that "
                "does so) into eval mode: model.eval()"
            )
    return z


def _equal(a: Tensor, b: Tensor) -> bool:
    """Whether all entries are equal; a NaN equals a NaN."""
    return a.shape == b.shape and bool(((a == b) | (a != a) & (b != b)).all())


def warn_of_output_nonlinearity(z: Tensor, loss: Any, stacklevel: int) -> None:
    """Warn of a nonlinearity at the end of the model that belongs to the loss."""
    loss = as_loss_module(loss)
    kind, ending, better = _OUTPUT_NONLINEARITIES.get(type(loss), ("", "", ""))
    node = z.grad_fn
    while node is not None and node.name().startswith(_RESHAPING):
        node = node.next_functions[0][0]
    if kind and node is not None and node.name().startswith(kind):
        warnings.warn(
            f"The model ends in {ending} under {type(loss).__name__}: the Gauss-Newton matrix "
            "then leaves out the curvature of that nonlinearity, which belongs to the loss. "
            f"Drop it from the model and use {better}.",
            UserWarning,
            stacklevel=stacklevel + 1,
        )


def check_values(problem: Any, model: FlatModel) -> None:
    """Refuse values that are not deterministic, no mean over samples, or of other parameters."""
    first_samples = problem._sums.samples.first
    samples = first_samples(0, _CHECK_SAMPLES)
    _check_loss(problem, model, first_samples(0, _LOSS_SAMPLES))
    name, tolerance = type(model.model).__name__, _VALUE_TOLERANCE[model.precision]
    x = model.near_x0()
    first, second = problem.value(x, samples), problem.value(x, samples)
    if abs(first - second) > tolerance * abs(first):
        raise ValueError(
            f"{name} is not deterministic, or its data are not: the same parameters and samples "
            f"gave the loss {first!r}, then {second!r}. Remove the randomness (eval mode), or let "
            "the model draw from torch's global generators, which are seeded for each set"
        )
    half = samples.shape[0] // 2
    if not model.is_random and half >= 2:
        halves = first_samples(0, half), first_samples(half, samples.shape[0])
        _check_batches(problem, x, halves, first, tolerance, name)


def _check_batches(
    problem: Any,
    x: Tensor,
    batches: tuple[Any, ...],
    together: float,
    tolerance: float,
    name: str,
) -> None:
    """Refuse a model whose mean loss is another one if computed in batches."""
    n = sum(batch.shape[0] for batch in batches)
    apart = sum(batch.shape[0] / n * problem.value(x, batch) for batch in batches)
    if abs(together - apart) > tolerance * max(abs(together), abs(apart)):
        raise ValueError(
            f"{name} mixes its samples: the mean loss of {n} is {together!r}, but {apart!r} if "
            "computed in two batches. The samples must lie along the first axis "
            "(batch_first=True), and the outputs of one must not depend on another"
        )


def _check_loss(problem: Any, model: FlatModel, samples: Any) -> None:
    """Refuse a loss that reads parameters: those of the model it sees at their old values."""
    kernels = problem._sums._kernels
    inputs, targets = problem._sums.samples.take(problem._sums.samples.indices(samples))
    with model.arithmetic(model.precision), seeded_generators(0, model.device):
        z = model(model.split(model.x0), inputs).detach().requires_grad_()
        read = _leaves(kernels.losses(z, tree_map(Tensor.detach, targets), samples.shape[0]))
    fixed = {id(parameter) for parameter in model.model.parameters()}
    for name, parameter in model.variables().items():
        fixed.discard(id(parameter))
        if id(parameter) in read:
            raise ValueError(
                f"the loss reads the parameter {name!r} of the model, which it would see at its "
                "old value: use l2=, or write the whole objective as a plain function: "
                "ksdmin.from_torch(fun, x0=model)"
            )
    own = [tensor for key, tensor in read.items() if key not in fixed and tensor is not z]
    if own:
        raise ValueError(_own_parameters(kernels.loss.losses, own))


def _leaves(result: Tensor) -> dict[int, Tensor]:
    """The tensors that a result is differentiable in, by id."""
    leaves: dict[int, Tensor] = {}
    waiting, seen = [result.grad_fn], {result.grad_fn}
    while waiting:
        node = waiting.pop()
        variable = getattr(node, "variable", None)
        if variable is not None:
            leaves[id(variable)] = variable
        for child, _ in node.next_functions if node is not None else ():
            if child not in seen:
                seen.add(child)
                waiting.append(child)
    return leaves


def _own_parameters(losses: Any, own: list[Tensor]) -> str:
    """The message about a loss that has parameters of its own."""
    parts = (losses, *getattr(losses, "args", ()))  # of a partial application
    for loss in parts:
        named = loss.named_parameters() if isinstance(loss, nn.Module) else ()
        names = [repr(name) for name, parameter in named if any(parameter is one for one in own)]
        if names:
            return (
                f"the loss {type(loss).__name__} has parameters of its own ({', '.join(names)}), "
                "which would not be optimised: freeze them (requires_grad_(False)), or put them "
                "into the model"
            )
    shapes = ", ".join(str(tuple(tensor.shape)) for tensor in own)
    return (
        f"the loss reads tensors that require a gradient (of shape {shapes}) and are no parameters "
        "of the model: they would not be optimised. Detach them, or put them into the model"
    )
