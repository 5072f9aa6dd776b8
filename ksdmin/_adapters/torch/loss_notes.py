"""What an error in the first call of a loss is told with: the targets, and what may be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from ksdmin._adapters.torch.data.epochs import EpochSamples
from ksdmin._adapters.torch.data.samples import Samples
from ksdmin._problem.subsets import WHOLE

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
