"""A model and its loss, or a model that returns its own: what a first forward pass shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from torch import Tensor

from ksdmin._adapters.arguments import Arguments
from ksdmin._adapters.curvature import SampleLoss
from ksdmin._adapters.torch.checks import check_forward_pass, warn_of_output_nonlinearity
from ksdmin._adapters.torch.costs import SavedBytes, saved_bytes
from ksdmin._adapters.torch.data.epochs import EpochSamples
from ksdmin._adapters.torch.data.samples import Samples
from ksdmin._adapters.torch.flat_model import FlatModel
from ksdmin._adapters.torch.kernels import Chunk, Kernels
from ksdmin._adapters.torch.losses.gaussian import check_variance
from ksdmin._adapters.torch.losses.known import as_sample_loss, is_gaussian
from ksdmin._adapters.torch.losses.own import OwnLosses, OwnLossKernels
from ksdmin._adapters.torch.model_calls import SeveralTensors, arguments, reader_of, takes
from ksdmin._adapters.torch.modes import seeded_generators
from ksdmin._adapters.trees import tree_leaves
from ksdmin._problem.subsets import WHOLE

# Samples of the forward passes that show what a model is like: more than one, so that the axis of
# the samples can be distinguished, and few, as some of these passes go sample by sample.
PROBE_SAMPLES = 3


def probe_of(samples: Samples | EpochSamples) -> Chunk:
    """A few samples."""
    few = samples.indices(samples.first(0, PROBE_SAMPLES))
    return next(samples.chunks(few, PROBE_SAMPLES))


class First(NamedTuple):
    """What the first pass of a few samples, at x0, has shown.

    Attributes
    ----------
    z : Tensor
        The outputs.
    bytes_per_sample : int or None
        What it keeps of a sample for the backward pass; None where it takes no hooks.
    """

    z: Tensor
    bytes_per_sample: int | None


def first_pass(kernels: Kernels, z: Tensor, probe: Chunk, saved: SavedBytes | None) -> First:
    """What a pass has shown that gave the outputs z."""
    with kernels.model.arithmetic(kernels.model.precision):
        return First(z.detach(), saved_bytes(kernels, z, probe, saved))


def kernels_of(
    model: FlatModel, samples: Samples | EpochSamples, asked: Arguments, stacklevel: int
) -> tuple[Kernels, First]:
    """The computations for a model and its loss, and a first pass."""
    probe, loss, curvature = probe_of(samples), asked.loss, asked.curvature
    model.modes.add(loss)
    with model.arithmetic(model.precision), seeded_generators(0, model.device):
        if loss is None:
            return _with_own_loss(model, probe, samples, asked)
        (outputs, saved), rows = check_forward_pass(model, probe[0]), len(probe[2])
        model.reader = reader = reader_of(outputs, rows, asked.output, type(model.model).__name__)
        z = model.read(outputs, probe[0])
    several = reader if isinstance(reader, SeveralTensors) else None
    curvature = curvature or "gauss-newton"
    sample_loss = _sample_loss(loss, several, z.detach(), curvature)
    if sample_loss.sample_weights is not None:
        samples.normalize_weights(sample_loss.sample_weights)
    if curvature == "gauss-newton":
        warn_of_output_nonlinearity(z, loss, stacklevel=stacklevel + 1)
    kernels = Kernels(model, sample_loss, curvature if isinstance(curvature, str) else "")
    return kernels, first_pass(kernels, z, probe, saved)


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
) -> tuple[Kernels, First]:
    """The same for a model that returns its own loss."""
    name = type(model.model).__name__
    if not takes(model.model, *arguments(model.model, probe[0])):
        raise TypeError(
            f"loss= is missing: without it, all of data are the inputs of {name}, which has to "
            "return its own loss, but its forward pass does not take them"
        )
    outputs, saved = check_forward_pass(model, probe[0])
    model.reader = losses = OwnLosses(asked.output, outputs, len(probe[2]), name)
    if losses.is_scalar:
        _check_equal_weights(samples)
        _check_no_batches(model)
    kernels = OwnLossKernels(model, losses)
    first = first_pass(kernels, model.read(outputs, probe[0]), probe, saved)
    kernels.set_curvature(asked.curvature, probe)
    return kernels, first


def _check_no_batches(model: FlatModel) -> None:
    """Refuse BatchNorm in train mode where a batch cannot be filled up with samples of weight 0."""
    if model.batch_norms:
        raise ValueError(
            f"{type(model.batch_norms[0]).__name__} in train mode does not work with a model that "
            "returns the mean loss of a batch: let it return one loss per sample, or give loss= "
            "and targets"
        )


def _check_equal_weights(samples: Samples | EpochSamples) -> None:
    """Refuse weights of samples for a loss that is a mean over the batch already."""
    if not samples.has_equal_weights:
        raise ValueError(
            "the model returns the mean loss of a batch, in which samples cannot be weighted: let "
            "it return one loss per sample, or give loss= and targets"
        )


# What an error in the first call of a loss is told with: the targets, and what may be wrong


LABELS = "Class labels are whole numbers of 64 bits: pass y.long()."
NUMBERS = "This loss takes targets as floating-point numbers: pass y.float()."
ONE_AXIS = "There is one class label for each sample, shape (n,): pass y[:, 0]."
RANGE = "Class labels run from 0 up to, but not including, the number of the model's outputs."
WORDS_OF_DTYPES = ("Long", "dtype", "can't be cast", "bool", "not implemented for")


@contextmanager
def noting_targets(targets: Any, samples: Samples | EpochSamples) -> Iterator[None]:
    """Add to an error what the targets were, of a few of the samples, and a hint."""
    try:
        yield
    except Exception as error:
        tensors = [leaf for leaf in tree_leaves(targets) if isinstance(leaf, Tensor)]
        if tensors:
            with suppress(Exception):  # an exception may refuse it
                error.add_note(_described(tensors, samples.size(samples.indices(WHOLE))))
                if hint := _hint(str(error), tensors):
                    error.add_note(hint)
        raise


def _described(tensors: list[Tensor], n: int) -> str:
    rows = tensors[0].shape[0]
    forms = ", ".join(f"{tensor.dtype} {tuple(tensor.shape)}" for tensor in tensors)
    number = "" if rows == n else f"the first {rows} of "
    return f"the loss was called with {number}{n} samples, as a check; their targets were {forms}"


def _hint(message: str, tensors: list[Tensor]) -> str:
    """What may be wrong, by the words of torch's message."""
    if "multi-target" in message or "1D target" in message:
        return ONE_AXIS
    if "Target" in message and "out of bounds" in message:
        return RANGE
    if not any(word in message for word in WORDS_OF_DTYPES):
        return ""
    wants_labels = "Long or Byte" in message or "scalar type Long" in message
    given_floats = any(tensor.is_floating_point() for tensor in tensors)
    return LABELS if wants_labels or given_floats else NUMBERS
