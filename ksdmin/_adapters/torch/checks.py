"""Checks of a model on a few samples.

The loss must be a sum over samples, the same in every call, with correct derivatives.
"""

from __future__ import annotations

import math
import warnings
from contextlib import ExitStack, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from ksdmin._adapters.arguments import check_deterministic
from ksdmin._adapters.flat_problem import warn_if_constant
from ksdmin._adapters.torch.costs import Computed, Kept, SavedBytes
from ksdmin._adapters.torch.data.arrays import TARGETS_PER_READ, same
from ksdmin._adapters.torch.flat_model import FlatModel, random_direction
from ksdmin._adapters.torch.kernels import (
    OF_THE_MODEL,
    OWN_PRODUCTS,
    RETAINED,
    Chunk,
    Kernels,
    MissingDerivative,
    contradicts,
    explained,
    nodes,
)
from ksdmin._adapters.torch.losses import as_loss_module
from ksdmin._adapters.torch.model_calls import (
    detached,
    generator_states,
    set_generator_states,
    takes_statistics,
    tracking,
)
from ksdmin._adapters.torch.probing import Probing
from ksdmin._adapters.trees import tree_leaves, tree_map
from ksdmin._problem.subsets import WHOLE
from ksdmin._problem.user_values import add_note, frames_to_the_user

# Nonlinearities at the end of a model that belong to the loss: for each loss the name of the node
# in the autograd graph, what it is, and the loss that contains it.
_OUTPUT_NONLINEARITIES: dict[type, tuple[str, str, str]] = {
    nn.BCELoss: ("SigmoidBackward", "a sigmoid", "BCEWithLogitsLoss"),
    nn.NLLLoss: ("LogSoftmaxBackward", "a log-softmax", "CrossEntropyLoss"),
    # These losses contain it: it would be applied twice.
    nn.BCEWithLogitsLoss: ("SigmoidBackward", "a sigmoid", ""),
    nn.CrossEntropyLoss: ("SoftmaxBackward", "a softmax", ""),
}
_RESHAPING = ("View", "Reshape", "UnsafeView", "Squeeze", "Unsqueeze", "Select", "Slice", "ToCopy")
# Relative difference allowed between two equal values: a hundred times the rounding error of a mean
# loss (VALUE_NOISE), because other kernels may compute batches of another size.
_VALUE_TOLERANCE = {"highest": 1e-5, "high": 1e-3, "bfloat16": 1e-1}
_CHECK_SAMPLES = 8  # enough for two batches larger than one sample, and cheap
_TAKE_STATISTICS = (
    "To hold its statistics, first let it take them: run some batches in train mode under "
    "torch.no_grad(), then model.eval()"
)
_SEEDED = ", or draw from torch's global generators, which are seeded for each set"
_MEAN_SAMPLES = 32  # for a loss that is already a mean: each sample is computed by itself
_IGNORED = -100  # the label that HuggingFace's models leave out of their mean


def check_model(model: nn.Module, without_batches: str | None = None) -> None:
    """Raise for modules that do not fit into a flat vector, or cannot be evaluated in batches.

    `without_batches` is the argument, if any, that does not work with statistics of a batch.
    """
    for name, module in model.named_modules():
        if reason := _refusal(module, without_batches):
            raise ValueError(f"{type(module).__name__} {name!r} {reason}")
        if isinstance(module, _BatchNorm) and _lacks_statistics(module):
            warnings.warn(
                f"{type(module).__name__} {name!r} is in eval mode, but has taken no statistics: "
                "it normalises nothing (mean 0, variance 1). To train with the statistics of each "
                f"batch, call model.train() before from_torch. {_TAKE_STATISTICS}.",
                UserWarning,
                stacklevel=frames_to_the_user(),
            )


def _refusal(module: nn.Module, without_batches: str | None) -> str | None:
    if isinstance(module, _BatchNorm) and takes_statistics(module):
        if isinstance(module, nn.SyncBatchNorm):
            return (
                "is in train mode, and would take statistics of several processes: put a BatchNorm "
                f"in its place, or put it into eval mode. {_TAKE_STATISTICS}"
            )
        if without_batches is not None:
            why = "is in train mode" if module.training else "keeps no running statistics"
            return (
                f"{why}, and takes the statistics of each batch, which does not work with "
                f"{without_batches}. {_TAKE_STATISTICS}. Or use GroupNorm or LayerNorm, which need "
                "none"
            )
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        if module.max_norm is not None:
            return "rescales its weight (max_norm) in every forward pass: use l2 instead"
        if module.sparse:
            return "makes sparse gradients, which a flat vector cannot hold: set its sparse=False"
    return None


def _lacks_statistics(module: Any) -> bool:
    """Whether a module in eval mode still has the initial running mean and variance."""
    if takes_statistics(module):
        return False
    seen = module.num_batches_tracked
    if seen is None or int(seen) > 0 or module.running_mean.is_meta:
        return False
    return not bool(module.running_mean.any()) and bool((module.running_var == 1).all())


NO_FLAG = (
    "A model or residual that differentiates in its inputs asks for that itself, as flags of the "
    "data are not kept: x = x.requires_grad_() in its first line."
)
ONE_DICT = (
    "The fields of a dict become keyword arguments if the forward pass has parameters of these "
    "names; otherwise the dict is its one argument. Rename the fields, or give (inputs, targets)."
)
NO_COLUMN = "A sample is a row: inputs of one feature are a column, X[:, None]."
NOT_FLOAT = "The inputs are whole numbers: pass X.float()."


def check_forward_pass(model: FlatModel, inputs: Any) -> tuple[Any, Kept]:
    """The outputs for a few samples, and what is kept for a backward pass.

    Raises for a model that writes into its buffers. Sets ``model.is_random``, whether it draws from
    torch's global generators, and ``model.writes_into_inputs``.
    """
    buffers = {name: buffer.clone() for name, buffer in model.model.named_buffers()}
    writes = [buffer._version for buffer in model.model.buffers()]
    before = generator_states(model.device)
    copies = tree_map(Tensor.clone, inputs)
    autocast = SeesAutocast(model.device.type)
    parameters = model.leaves(model.x0)
    saved, outputs = SavedBytes(parameters), None
    kept: Kept = saved
    try:
        with autocast if model.precision != "bfloat16" else nullcontext():
            with suppress(RuntimeError), saved.watching():  # which torch.func does not accept
                outputs = model(parameters, copies, raw=True)
            if outputs is None or saved.was_read:  # hooks change a derivative in the model
                kept = Computed() if outputs is None else saved
                copies = tree_map(Tensor.clone, inputs)
                set_generator_states(before, model.device)
                with kept.watching() if outputs is None else nullcontext():
                    outputs = model(parameters, copies, raw=True)
    except Exception as error:
        forms = tree_map(lambda leaf: f"{leaf.dtype} {tuple(leaf.shape)}", inputs)
        add_note(error, f"the model was called with {forms}".replace("'", ""))
        add_note(error, NO_FLAG, "does not require grad")
        add_note(error, ONE_DICT, "must be Tensor, not dict")
        if hint := _hint(error, tree_leaves(inputs)):
            add_note(error, hint)
        raise
    if autocast.seen:
        raise ValueError(
            f"{type(model.model).__name__} computes under torch.autocast in its forward pass, with "
            "rounding that the run does not know of: leave that out, and pass precision='bfloat16'"
        )
    after = generator_states(model.device)
    model.is_random = not all(map(torch.equal, before, after))
    model.writes_into_inputs = any(leaf._version for leaf in tree_leaves(copies))
    if [
        buffer._version for buffer in model.model.buffers()
    ] != writes:  # the same numbers, perhaps, at the start only
        with model.restored_randomness():
            model(model.leaves(model.near_x0()), tree_map(Tensor.clone, inputs), raw=True)
    for name, buffer in model.model.named_buffers():
        if name not in buffers or not same(buffer, buffers[name]):
            raise ValueError(
                f"{type(model.model).__name__} writes into its buffer {name!r} in the forward "
                "pass, which makes it another function every time. Put it (or the module that "
                "does so) into eval mode: model.eval()"
            )
    return outputs, kept


def _hint(error: Exception, inputs: list[Tensor]) -> str:
    """What may be wrong with the inputs, judging by the error of the first call."""
    message = str(error)
    misshapen = "shapes cannot be multiplied" in message or "too many indices" in message
    if misshapen and any(leaf.ndim == 1 for leaf in inputs):
        return NO_COLUMN
    whole = any(not leaf.is_floating_point() and not leaf.is_complex() for leaf in inputs)
    return NOT_FLOAT if whole and "must have the same dtype" in message else ""


class SeesAutocast(TorchFunctionMode):
    """Records whether a function of torch is called under autocast."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device, self.seen = device, False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.seen = self.seen or torch.is_autocast_enabled(self._device)
        return func(*args, **(kwargs or {}))


def warn_of_output_nonlinearity(z: Tensor, loss: Any, curvature: Any) -> None:
    """Warn of a nonlinearity at the end of the model that belongs to the loss."""
    loss = as_loss_module(loss)
    kind, ending, better = _OUTPUT_NONLINEARITIES.get(type(loss), ("", "", ""))
    if not kind or (better and curvature != "gauss-newton"):
        return
    node = z.grad_fn
    while node is not None and node.name().startswith(_RESHAPING):
        node = node.next_functions[0][0]
    if node is None or not node.name().startswith(kind):
        return
    if better:
        message = (
            f"The model ends in {ending} under {type(loss).__name__}: the Gauss-Newton matrix "
            "then leaves out the curvature of that nonlinearity, which belongs to the loss. "
            f"Drop it from the model and use {better}."
        )
    else:
        message = (
            f"The model ends in {ending}, and {type(loss).__name__} applies it, too. Drop it from "
            "the model, which should return logits."
        )
    warnings.warn(message, UserWarning, stacklevel=frames_to_the_user())


def warn_of_targets(targets: Any, loss: Any) -> None:
    """Warn of targets for which a loss of yes and no has no minimum, such as -1 and 1."""
    if type(as_loss_module(loss)) is not nn.BCEWithLogitsLoss or not isinstance(targets, Tensor):
        return
    low, high = (float(end) for end in (targets.min(), targets.max()))
    if low < 0 or high > 1:
        warnings.warn(
            f"BCEWithLogitsLoss: among the first targets are {low:g} and {high:g}, but it expects "
            "0 and 1, and is unbounded below for others. For -1 and 1 give (y + 1) / 2.",
            UserWarning,
            stacklevel=frames_to_the_user(),
        )


def check_values(problem: Any, probing: Probing) -> None:
    """Raise for values that are not deterministic, no mean over samples, or of other parameters."""
    model, sums, x = probing.kernels.model, problem._sums, probing.x
    first_samples = sums.samples.first
    samples = first_samples(0, _CHECK_SAMPLES)
    _check_loss(probing)
    if not probing.gradient().any():
        warn_if_constant(problem, problem.x0, random_direction(problem.x0, 3), samples)
    name, tolerance = type(model.model).__name__, _VALUE_TOLERANCE[model.precision]
    n, known, total = samples.shape[0], len(probing.chunk[2]), float(probing.total.detach())

    def sum_over(start: int, stop: int) -> float:
        idx = sums.samples.indices(first_samples(start, stop))
        return float(sums.total("value", x, idx, model.precision)[0])

    mixes = model.is_random or probing.kernels.is_scalar
    if not mixes and not model.batch_norms and n > known:
        together, apart = sum_over(0, n), total + sum_over(known, n)
        if abs(together - apart) <= tolerance * max(abs(together), abs(apart)):
            return  # the loss is the same in every call, and a sum over samples
    if mixes or not model.batch_norms:
        first, second = problem.value(x, samples), problem.value(x, samples)
    else:  # the same batch as before
        first, second = total, sum_over(0, known)
    check_deterministic(name, first, second, tolerance, _SEEDED)
    if probing.kernels.is_scalar:
        _check_mean_losses(problem, model, x)
    elif not model.is_random and n >= 2 and tracking(model.batch_norms) == model.batch_norms:
        halves = first_samples(0, n // 2), first_samples(n // 2, n)
        with ExitStack() as stack:
            if model.batch_norms:  # samples may not be mixed otherwise
                stack.enter_context(sums.without_graphs())
                stack.enter_context(model.modes.in_eval(model.batch_norms))
                first = problem.value(x, samples)
            apart = sum(half.shape[0] / n * problem.value(x, half) for half in halves)
        if abs(first - apart) > tolerance * max(abs(first), abs(apart)):
            raise ValueError(
                f"{name}, or its loss, mixes its samples: the mean loss of {n} is {first!r}, but "
                f"{apart!r} if computed in two batches. The samples must lie along the first axis "
                "(batch_first=True), and neither the outputs nor the loss of one may depend on "
                "another: in a loss or residual of your own, shapes such as (n, 1) and (n,) "
                "broadcast to (n, n)"
            )


def _check_mean_losses(problem: Any, model: FlatModel, x: Tensor) -> None:
    """Raise if a model's own loss is not a mean of its samples' losses, but of all words, say.

    Each sample alone shows different weights; dropout must not hide them.
    """
    name, source = type(model.model).__name__, problem._sums.samples
    n = source.size(source.indices(WHOLE))
    count = min(_MEAN_SAMPLES, n)
    samples, singles = source.first(0, count), [source.first(i, i + 1) for i in range(count)]
    if problem.subsets.n is not None:  # over all of them: neighbours may have one length
        spread = torch.arange(count) * n // count
        samples = torch.unique(torch.cat([spread, _with_ignored_labels(source)]))
        singles = list(samples.split(1))
    with model.modes.in_eval() if model.is_random else nullcontext():
        together = problem.value(x, samples)
        apart = sum(problem.value(x, one) for one in singles) / len(singles)
    difference, largest = abs(together - apart), max(abs(together), abs(apart))
    # the loss of a sample that is left out entirely is NaN
    alone = math.isfinite(together) and math.isnan(apart)
    if alone or difference > _VALUE_TOLERANCE[model.precision] * largest:
        raise ValueError(
            f"the loss that {name} returns is not the mean of its samples' losses: that of "
            f"{len(singles)} is {together!r}, but their mean one by one {apart!r}. If it is a mean "
            "over words, of which samples have different numbers, then give the loss, "
            "loss=CrossEntropyLoss(ignore_index=-100), and the labels as targets, "
            "data=(inputs, labels): the mean is then that over all words of the set. Otherwise let "
            "the model return one loss per sample"
        )


def _with_ignored_labels(source: Any) -> Tensor:
    """A few samples with ignored labels, if there are any."""
    found: list[Tensor] = []
    at = 0
    for inputs, _, w in source.chunks(source.indices(WHOLE), TARGETS_PER_READ):
        labels = inputs.get("labels") if isinstance(inputs, dict) else None
        if labels is None:
            break
        ignored = (labels == _IGNORED).reshape(len(w), -1).any(1)
        found.append(at + ignored.nonzero()[:, 0].cpu())
        at += len(w)
    return torch.cat(found)[:_MEAN_SAMPLES] if found else torch.zeros(0, dtype=torch.int64)


def _check_loss(probing: Probing) -> None:
    """Raise for a loss that reads parameters: it would see the model's old values."""
    kernels, model, forward = probing.kernels, probing.kernels.model, probing.forward
    with model.arithmetic(model.precision):
        z = forward.z.detach().requires_grad_()
        read = _leaves(kernels.losses(z, detached(forward.targets), len(forward.w)))
    for name, parameter in model.variables().items():
        if id(parameter) in read:
            raise ValueError(
                f"the loss reads the parameter {name!r} of the model, which it would see at its "
                "old value: use l2=, or write the whole objective as a plain function: "
                "ksdmin.from_torch(fun, x0=model)"
            )
    _refuse_others("the loss reads", [one for one in read.values() if one is not z], model)


def _leaves(result: Tensor) -> dict[int, Tensor]:
    """The leaf tensors that a result depends on, by id."""
    found = [getattr(node, "variable", None) for node in nodes(result)]
    return {id(variable): variable for variable in found if variable is not None}


def check_parameters_are_the_models(r: Tensor, model: FlatModel) -> None:
    """Raise for residuals that read parameters of others, such as an unknown coefficient.

    Tensors that are no parameters may be points that the residuals differentiate in.
    """
    _refuse_others(
        "the residuals read", [p for p in _leaves(r).values() if isinstance(p, nn.Parameter)], model
    )


def _refuse_others(reads: str, tensors: list[Tensor], model: FlatModel) -> None:
    """Raise for tensors that require a gradient and are not the model's."""
    own = {id(parameter) for parameter in model.model.parameters()}
    others = [tensor for tensor in tensors if id(tensor) not in own]
    if others:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in others)
        raise ValueError(
            f"{reads} parameters or tensors that require a gradient (of shape {shapes}) and are "
            "not the model's: they would not be optimised. Put them into the model (model.c = "
            "torch.nn.Parameter(...)), or freeze them (requires_grad_(False), .detach())"
        )


# Relative difference between two numbers that are equal up to rounding, by precision.
_TOLERANCE = {"highest": 1e-4, "high": 1e-2, "bfloat16": 1e-1}
# The relative step of a difference of gradients: in float64 both the rounding error and the
# curvature of the gradient are far below the tolerance, and a kink is unlikely.
_STEP = 1e-6
# A difference this many times larger than by chance is real.
MANY = 10.0
_MAX_DIFFERENCE = 1e-2


def check_gradients_found(probing: Probing) -> None:
    """Raise if the loss depends on parameters for which torch finds no gradient."""
    kernels, model = probing.kernels, probing.kernels.model
    try:
        g = probing.gradients()
    except RuntimeError as error:
        if "second time" in str(error):  # the graph of a derivative in the model is freed
            error.add_note(RETAINED)
        raise
    missing = [name for name, piece in zip(model.slices(), g, strict=True) if piece is None]
    if not missing:
        return
    moved, slices = probing.x.clone(), model.slices()
    for name in missing:
        moved[slices[name]] += random_direction(moved[slices[name]], 3)
    with model.restored_randomness():
        there = kernels.value(moved, probing.chunk)[0]
    change = abs(float(there - probing.total.detach()))
    if change == 0 and len(missing) == len(g):
        raise ValueError(
            "the loss, or these residuals, do not depend on any parameter of the model. A function "
            "that computes with a module of its own does not: use the model that it is given"
        )
    if change > _TOLERANCE[model.precision] * abs(float(there)):
        raise ValueError(
            f"the loss depends on {', '.join(map(repr, missing[:3]))}, but torch finds no gradient "
            "in it: a checkpoint needs use_reentrant=False; take away .detach(), .data or "
            "torch.no_grad(), or freeze the parameter with requires_grad_(False)"
        )


def check_inner_derivatives(probing: Probing) -> None:
    """Raise for a model with a derivative in it that autograd treats as a constant."""
    kernels, model = probing.kernels, probing.kernels.model

    def value_at(x: Tensor) -> float:
        with model.restored_randomness():
            return float(kernels.value(x, probing.chunk)[0])

    if contradicts(value_at, probing.x, float(probing.total.detach()), probing.gradient()):
        name = type(model.model).__name__
        raise ValueError(f"the gradient of {name} is not that of its values. {RETAINED}")


def reads_parameters_again(probing: Probing) -> bool:
    """Whether the backward pass reads parameters from the module, as activation checkpoints do.

    Checkpoints compute the activations again, after the forward pass has restored the module's own
    parameters. Then the gradient is a different one, by more than it varies from call to call (that
    of a convolution on a GPU does).
    """
    model, gradients = probing.kernels.model, []
    for model.recomputes in (False, False, True):
        gradients.append(probing.gradient())
    first, again, held = gradients
    rounding = torch.finfo(first.dtype).eps * float(first.norm())
    chance = MANY * max(float((again - first).norm()), rounding)
    return not float((held - first).norm()) <= chance


def fault_of_products(probing: Probing) -> str | None:
    """Why curvature products are wrong, or missing; None if they are right.

    Torch may have no second derivative of an operation, a torch.autograd.Function may compute
    something in its backward pass that torch does not see, or torch itself is wrong (as its
    weight_norm is).
    """
    kernels = probing.kernels
    try:
        if kernels.curvature == "hessian":
            found = _fault_of_hessian(probing)
        else:
            found = _fault_of_jacobian(probing) if kernels.curvature else None
    except MissingDerivative as error:
        return str(error)
    return None if found is None else _wrong(kernels, found)


def _fault_of_jacobian(probing: Probing) -> str | None:
    """J v, from differentiating the backward pass, and J^T u, from the backward pass itself."""
    kernels, model, forward = probing.kernels, probing.kernels.model, probing.forward
    v = random_direction(probing.x, 1)
    with explained(OF_THE_MODEL):
        jvp, vjp = kernels.jacobian(forward.z, forward.parameters)
        Jv = jvp(v)
        u = random_direction(Jv, 2)
        here, there = float(u.flatten() @ Jv.flatten()), float(vjp(u) @ v)
    kernels.output_hessian(forward.z.detach(), forward.targets, forward.w)(u)  # it may be missing
    scale = max(float(u.norm() * Jv.norm()), abs(there))
    if abs(here - there) > _TOLERANCE[model.precision] * scale:
        return "products with the Jacobian and with its transpose disagree"
    return None


def _fault_of_hessian(probing: Probing) -> str | None:
    """Check that the product is symmetric and, in float64, equals a difference of gradients."""
    kernels, model, x = probing.kernels, probing.kernels.model, probing.x
    u, v = random_direction(x, 1), random_direction(x, 2)
    product = kernels.product_over(probing.forward)
    Hu, Hv = product(u).clone(), product(v)
    scale = float(u.norm() * Hv.norm() + v.norm() * Hu.norm())
    if abs(float(u @ Hv - v @ Hu)) > _TOLERANCE[model.precision] * scale:
        return "the Hessian is not symmetric"
    if x.dtype == torch.float64 and not _is_slope(kernels, probing.chunk, x, u, Hu):
        return "products differ from differences of gradients"
    return None


def _is_slope(kernels: Kernels, probe: Chunk, x: Tensor, u: Tensor, Hu: Tensor) -> bool:
    step = _STEP * max(1.0, float(x.norm())) / float(u.norm())
    gradients = []
    for at in (x + step * u, x - step * u):
        with kernels.model.restored_randomness():
            gradients.append(kernels.gradient(at, probe)[1])
    slope = (gradients[0] - gradients[1]) / (2 * step)
    rounding = 1e-12 * float(gradients[0].norm()) / step
    return not float((slope - Hu).norm()) > _MAX_DIFFERENCE * float(slope.norm()) + rounding


def _wrong(kernels: Kernels, what: str) -> str:
    advice = "" if kernels.curvature != "hessian" else "use curvature='gauss-newton', "
    return (
        f"second derivatives of {type(kernels.model.model).__name__} by torch are wrong: {what}. "
        "An autograd.Function in it may be once_differentiable, detach something in its backward "
        "pass, or keep a derivative that it computed in the forward pass; torch's own weight_norm "
        f"is wrong, too. Fix that, {advice}or {OWN_PRODUCTS}"
    )
