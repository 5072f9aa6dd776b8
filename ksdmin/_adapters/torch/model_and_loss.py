"""What is summed over samples: a model's loss, one that it returns itself, or squared residuals.

Also what a first forward pass of a few samples shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ksdmin._adapters import curvature as _curvature
from ksdmin._adapters.arguments import JOINED, REAL_PARTS, Arguments, Block, check_real, check_rows
from ksdmin._adapters.curvature import SampleLoss
from ksdmin._adapters.torch.checks import (
    check_forward_pass,
    check_parameters_are_the_models,
    warn_of_output_nonlinearity,
    warn_of_targets,
)
from ksdmin._adapters.torch.costs import Kept, bytes_per_sample
from ksdmin._adapters.torch.data.samples import EpochSamples, Samples, samples_of
from ksdmin._adapters.torch.flat_model import FlatModel
from ksdmin._adapters.torch.kernels import Chunk, Forward, Kernels, Product, hessian_of
from ksdmin._adapters.torch.losses import (
    as_sample_loss,
    check_variance,
    is_gaussian,
    refuse_one_class,
)
from ksdmin._adapters.torch.model_calls import (
    SeveralTensors,
    arguments,
    chosen,
    description,
    field,
    reader_of,
    row_count,
    seeded_generators,
    takes,
)
from ksdmin._adapters.torch.probing import alike
from ksdmin._adapters.trees import entries_or_fields, tree_leaves, tree_map
from ksdmin._problem.subsets import WHOLE

# Samples of the forward passes that examine a model: more than one, so that the axis of the samples
# can be recognised, and few, because some of these passes go sample by sample.
PROBE_SAMPLES = 3


def probe_of(samples: Samples | EpochSamples) -> Chunk:
    """A few samples."""
    few = samples.indices(samples.first(0, PROBE_SAMPLES))
    return next(samples.chunks(few, PROBE_SAMPLES))


def check_outputs(model: FlatModel, samples: Samples | EpochSamples) -> None:
    """Raise for a model that does not return float64."""
    inputs = probe_of(samples)[0]
    with model.arithmetic(model.precision), seeded_generators(0, model.device):
        outputs = tree_leaves(model(model.split(model.x0), inputs, raw=True), entries_or_fields)
    tensors = [leaf for leaf in outputs if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    found = {leaf.dtype for leaf in tensors}
    if found - {torch.float64}:
        raise TypeError(f"it returns {', '.join(sorted(map(str, found)))}")


def first_pass(kernels: Kernels, z: Tensor, probe: Chunk, kept: Kept) -> tuple[Kernels, Tensor]:
    """The kernels, which know what a pass of a few samples keeps, and its outputs."""
    with kernels.model.arithmetic(kernels.model.precision):
        kernels.bytes_per_sample = bytes_per_sample(kernels, z, probe, kept)
    return kernels, z.detach()


def kernels_of(
    model: FlatModel, samples: Samples | EpochSamples, asked: Arguments
) -> tuple[Kernels, Tensor]:
    """The computations for a model and its loss, and a first pass."""
    probe, loss, curvature = probe_of(samples), asked.loss, asked.curvature
    model.modes.add(loss)
    with model.arithmetic(model.precision), seeded_generators(0, model.device):
        if loss is None:
            return _with_own_loss(model, probe, samples, asked)
        (outputs, kept), rows = check_forward_pass(model, probe[0]), len(probe[2])
        model.reader = reader = reader_of(outputs, rows, asked.output, type(model.model).__name__)
        z = model.read(outputs, probe[0])
    several = reader if isinstance(reader, SeveralTensors) else None
    curvature = curvature or "gauss-newton"
    sample_loss = _sample_loss(loss, several, z.detach(), curvature)
    if sample_loss.sample_weights is not None:
        samples.normalize_weights(sample_loss.sample_weights)
    refuse_one_class(z, loss)
    warn_of_output_nonlinearity(z, loss, curvature)
    warn_of_targets(probe[1], loss)
    kernels = Kernels(model, sample_loss, curvature if isinstance(curvature, str) else "")
    return first_pass(kernels, z, probe, kept)


def _sample_loss(
    loss: Any, several: SeveralTensors | None, z: Tensor, curvature: Any
) -> SampleLoss:
    """The loss per sample."""
    sample_loss = as_sample_loss(loss, several)
    if several is not None and is_gaussian(loss):
        check_variance(several, z)
    if curvature == "fisher" and sample_loss.draw is None:
        raise ValueError(
            "curvature='fisher' draws labels from the model's likelihood, which "
            f"{type(loss).__name__} does not define: use 'gauss-newton' or 'empirical-fisher'"
        )
    return sample_loss


def _with_own_loss(
    model: FlatModel, probe: Chunk, samples: Samples | EpochSamples, asked: Arguments
) -> tuple[Kernels, Tensor]:
    """The same for a model that returns its own loss."""
    name = type(model.model).__name__
    if not takes(model.model, *arguments(model.model, probe[0])):
        raise TypeError(
            f"loss= is missing: without it, all of data are the inputs of {name}, which has to "
            "return its own loss, but its forward pass does not take them"
        )
    outputs, kept = check_forward_pass(model, probe[0])
    loss = _own_loss(asked.output, outputs)
    _check_own_loss(loss, outputs, len(probe[2]), name)
    model.reader, is_scalar = partial(_own_losses, asked.output), loss.ndim == 0
    if is_scalar and not samples.has_equal_weights:
        raise ValueError(
            "the model returns the mean loss of a batch, in which samples cannot be weighted: let "
            "it return one loss per sample, or give loss= and targets"
        )
    if is_scalar and model.batch_norms:  # a batch cannot be padded with weights of zero
        raise ValueError(
            f"{type(model.batch_norms[0]).__name__} in train mode does not work with a model that "
            "returns the mean loss of a batch: let it return one loss per sample, or give loss= "
            "and targets"
        )
    kernels = OwnLossKernels(model, is_scalar, asked.curvature, probe)
    return first_pass(kernels, model.read(outputs, probe[0]), probe, kept)


# Notes for an error in the first call of a loss: the targets, and what may be wrong


LABELS = "Class labels are whole numbers of 64 bits: pass y.long()."
NUMBERS = "This loss takes targets as floating-point numbers: pass y.float()."
ONE_AXIS = "There is one class label for each sample, shape (n,): pass y[:, 0]."
RANGE = "Class labels run from 0 up to, but not including, the number of the model's outputs."
PROBABILITIES = (
    "BCELoss takes probabilities: end the model with a sigmoid, or rather take BCEWithLogitsLoss "
    "without one."
)
WORDS_OF_DTYPES = ("Long", "dtype", "can't be cast", "bool", "not implemented for")


@contextmanager
def noting_targets(targets: Any, samples: Samples | EpochSamples) -> Iterator[None]:
    """Add to an error the targets of a few samples, and a hint."""
    try:
        yield
    except Exception as error:
        tensors = [leaf for leaf in tree_leaves(targets) if isinstance(leaf, Tensor)]
        if tensors:
            with suppress(Exception):  # an exception may refuse a note
                n, rows = samples.size(samples.indices(WHOLE)), tensors[0].shape[0]
                forms = ", ".join(f"{tensor.dtype} {tuple(tensor.shape)}" for tensor in tensors)
                error.add_note(
                    f"the loss was called with {'' if rows == n else f'the first {rows} of '}{n} "
                    f"samples, as a check; their targets were {forms}"
                )
                if hint := _hint(str(error), tensors):
                    error.add_note(hint)
        raise


def _hint(message: str, tensors: list[Tensor]) -> str:
    """What may be wrong, judging by torch's message."""
    if "multi-target" in message or "1D target" in message:
        return ONE_AXIS
    if "Target" in message and "out of bounds" in message:
        return RANGE
    if "between 0 and 1" in message:
        return PROBABILITIES
    if not any(word in message for word in WORDS_OF_DTYPES):
        return ""
    wants_labels = "Long or Byte" in message or "scalar type Long" in message
    given_floats = any(tensor.is_floating_point() for tensor in tensors)
    return LABELS if wants_labels or given_floats else NUMBERS


# Models that return their own loss: a mean over the batch, or one loss per sample


def _own_losses(output: Any, outputs: Any, rows: int) -> Tensor:
    """The losses that a model returns; the mean of a batch stands for each of its samples.

    `output` is where they are among the outputs; None: a tensor, or the field ``loss``.
    """
    loss: Tensor = _own_loss(output, outputs)
    return loss.expand(rows) if loss.ndim == 0 else loss.reshape(loss.shape[0])


def _own_loss(output: Any, outputs: Any) -> Any:
    if output is None:
        return outputs if isinstance(outputs, Tensor) else field(outputs, "loss")
    return chosen(outputs, output)


def _check_own_loss(loss: Any, outputs: Any, rows: int, model: str) -> None:
    """Raise if this is no loss of `rows` samples."""
    if not isinstance(loss, Tensor) or not loss.is_floating_point():
        raise TypeError(
            f"{model} was given no loss=, and returned {description(outputs)}: expected a loss, as "
            "the field 'loss' of the outputs, or as what output= names. Give loss= and "
            "data=(inputs, targets), or give the model what it computes its loss from (labels)"
        )
    if loss.shape not in ((), (rows,), (rows, 1)):
        raise ValueError(
            f"{model} returned a loss of shape {tuple(loss.shape)} for {rows} samples: expected "
            f"their mean, a scalar, or one loss per sample, shape ({rows},). If it returns outputs "
            "rather than a loss, then loss= is missing"
        )


class OwnLossKernels(Kernels):
    """The computations for a model that returns its own loss."""

    def __init__(
        self,
        model: FlatModel,
        is_scalar: bool,  # whether the loss is one number, the mean over a batch
        curvature: Any,  # by default the best that is available
        probe: Chunk,
    ) -> None:
        super().__init__(model, SampleLoss(_as_they_are), "hessian")
        self.is_scalar = is_scalar
        self._through_logits = self._depends_through_logits(probe)
        if curvature is None:
            curvature = "gauss-newton" if self._through_logits else "hessian"
        if curvature == "fisher":
            raise ValueError(
                "curvature='fisher' draws labels from the model's likelihood, which a loss that "
                "the model returns does not define: use 'hessian', or give loss= and targets"
            )
        needs_logits = curvature == "gauss-newton" or (
            curvature == "empirical-fisher" and self.is_scalar
        )
        if needs_logits and not self._through_logits:
            raise ValueError(
                f"curvature={curvature!r} needs the outputs that the model's own loss is computed "
                "from: no 'logits' among its outputs are all that its loss depends on. Use "
                "'hessian', or give loss= and targets"
            )
        self.curvature = curvature if isinstance(curvature, str) else ""

    def _depends_through_logits(self, probe: Chunk) -> bool:
        """Whether the gradient is that through the logits."""
        forward = self.forward(self.model.near_x0(), probe)
        parameters, z = forward.parameters, forward.logits
        if z is None:
            return False
        total = self.total_loss(forward.z, forward.targets, forward.w)
        (r,) = torch.autograd.grad(total, z, retain_graph=True, allow_unused=True)
        if r is None:
            return False
        part = torch.autograd.grad(z, parameters, r, retain_graph=True, allow_unused=True)
        whole = torch.autograd.grad(total, parameters, allow_unused=True)
        flat, x0 = self.model.flat, self.model.x0
        return alike(flat(part, x0), flat(whole, x0))

    def forward(self, x: Tensor, chunk: Chunk) -> Forward:
        """A forward pass: the losses, and the logits in the same graph."""
        inputs, targets, w = chunk
        parameters = self.model.leaves(x)
        outputs = self.model(parameters, inputs, raw=True)
        z = field(outputs, "logits")
        usable = isinstance(z, Tensor) and z.requires_grad and z.shape[:1] == (len(w),)
        losses = self.model.read(outputs, inputs)
        return Forward(parameters, losses, targets, w, z if usable else None)

    def _product(self, forward: Forward) -> Product:
        """The curvature through the logits, which are part of the loss's graph."""
        if self.curvature == "hessian" or not self._through_logits:
            return super()._product(forward)
        z = forward.logits
        assert z is not None
        total = self.total_loss(forward.z, forward.targets, forward.w)
        jvp, vjp = self.jacobian(z, forward.parameters)
        (r,) = torch.autograd.grad(total, z, create_graph=True)
        if self.curvature == "empirical-fisher":
            return _curvature.fisher(jvp, vjp, r.detach())
        return _curvature.gauss_newton(jvp, vjp, hessian_of(r, z))

    def single_losses(self, forward: Forward, inputs: Any) -> Iterable[Tensor]:
        """The weighted loss of each sample; from batches of one if only means are available."""
        if not self.is_scalar:
            return super().single_losses(forward, inputs)
        w = forward.w
        rows = (tree_map(lambda part, i=i: part[i : i + 1], inputs) for i in range(len(w)))
        return [
            self.total_loss(self.model(forward.parameters, one), (), w[i : i + 1])
            for i, one in enumerate(rows)
        ]


def _as_they_are(losses: Tensor, targets: Any) -> Tensor:
    return losses


# Blocks of residuals: a function of a module and some samples, r(model, batch), as a model


class ResidualModel(FlatModel):
    """The residuals of one block, as outputs of a flat vector."""

    def __init__(
        self,
        model: nn.Module,  # what the block's function gets; its own forward pass need not be used
        block: Block,  # the function and its samples
        # As in :class:`FlatModel`.
        params: Iterable[str | Tensor] | None,
        precision: str,
    ) -> None:
        super().__init__(model, params, precision)
        self.block, self._residuals = block, block.residuals
        self.modes.add(block.residuals)
        self._takes_samples = block.data is not None
        # the placeholder for the one "sample" of a function without samples
        self._data = block.data if self._takes_samples else torch.zeros(1)

    def of(self, model: nn.Module) -> ResidualModel:
        """The same residuals of a copy of the module."""
        with self.modes.in_force():  # the modes of a module that computes the residuals
            return ResidualModel(model, self.block, self._names, "highest")

    def samples(self, memory_budget: float) -> Samples | EpochSamples:
        """The samples of the block: inputs, without targets."""
        return samples_of(self._data, self.x0, False, memory_budget)

    def __call__(self, parameters: list[Tensor], inputs: Any, *, raw: bool = False) -> Tensor:
        """The residuals, one row per sample."""
        batch = (self.own_inputs(inputs),) if self._takes_samples else ()
        r = self.holding(parameters, self._residuals, self.model, *batch)
        if not isinstance(r, Tensor):
            kind = type(r).__name__
            raise TypeError(f"r returned {kind}: expected one tensor of residuals. {JOINED}")
        check_real(r, "r", REAL_PARTS)
        check_rows(tuple(r.shape), row_count(inputs) if self._takes_samples else None)
        r = r if self._takes_samples else r[None]
        return r if raw else r.to(self.x0.dtype)


def residual_kernels(model: ResidualModel, probe: Chunk, curvature: str) -> tuple[Kernels, Tensor]:
    """The computations for a block, and what a first pass has shown.

    Raises if torch cannot differentiate the residuals in the parameters.
    """
    with model.arithmetic(model.precision), seeded_generators(0, model.device):
        r, kept = check_forward_pass(model, probe[0])
    if not r.requires_grad:
        raise ValueError(
            "the residuals do not depend on the model's parameters, as far as autograd knows: use "
            "the model that r is given, neither .detach(), .item(), numpy nor torch.no_grad(), and "
            "for derivatives torch.autograd.grad(..., create_graph=True)"
        )
    check_parameters_are_the_models(r, model)
    squares = as_sample_loss(nn.MSELoss())  # their mean over the residuals of a sample
    kernels = Kernels(model, replace(squares, losses=partial(_losses, squares.losses)), curvature)
    return first_pass(kernels, r.to(model.x0.dtype), probe, kept)


def _losses(losses: Callable[[Tensor, Tensor], Tensor], z: Tensor, y: Any) -> Tensor:
    """Squares of outputs minus zero; or, for "fisher", minus targets drawn like the residuals."""
    return losses(z, y if isinstance(y, Tensor) else torch.zeros_like(z))
