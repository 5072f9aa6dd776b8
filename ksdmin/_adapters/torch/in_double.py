"""The same problem in float64: what a run in float32 turns to when rounding hides its steps."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ksdmin._adapters.flat_problem import FlatProblem
from ksdmin._adapters.torch.data.epochs import EpochSamples
from ksdmin._adapters.torch.data.samples import Samples
from ksdmin._adapters.torch.flat_model import LOCK, FlatModel
from ksdmin._adapters.torch.model_and_loss import probe_of
from ksdmin._adapters.torch.modes import seeded_generators
from ksdmin._adapters.trees import entries_or_fields, tree_leaves
from ksdmin._problem.out_of_memory import is_out_of_memory


class InDouble:
    """Makes the problem in float64, as often as it is asked for.

    (It is not kept: buffers and frozen parameters of the module may change between two runs.) A
    model that fails in float64 is tried once, and the user is told.

    Parameters
    ----------
    make : callable
        () -> the problem.
    """

    def __init__(self, make: Callable[[], FlatProblem]) -> None:
        self._make, self._fails = make, False

    def __call__(self) -> FlatProblem | None:
        """The problem; None where it cannot be made."""
        if self._fails:
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the user has seen them
                return self._make()
        except Exception as error:  # whatever the model cannot do
            self._fails = True
            warnings.warn(
                "Rounding in float32 hides what further steps gain, but in float64 the model fails "
                f"({type(error).__name__}: {error}), so the run stays in float32. {_advice(error)} "
                "precision='float32' in from_torch says not to try.",
                RuntimeWarning,
                stacklevel=2,
            )
            return None


def _advice(error: Exception) -> str:
    if is_out_of_memory(error):
        return "Its copy needs room for twice the bytes beside the model itself;"
    return "Tensors that the model makes or captures should have the dtype of what it is given;"


def doubled(thing: Any) -> Any:
    """A copy of a module whose parameters and buffers are float64; other things as they are."""
    if not isinstance(thing, nn.Module):
        return thing
    with LOCK:  # another thread may have its own parameters in it
        return copy.deepcopy(thing).double()


def check_outputs(model: FlatModel, samples: Samples | EpochSamples) -> None:
    """Refuse a model that returns less than float64, whatever its parameters are."""
    inputs = probe_of(samples)[0]
    with model.arithmetic(model.precision), seeded_generators(0, model.device):
        outputs = tree_leaves(model.outputs(model.split(model.x0), inputs), entries_or_fields)
    tensors = [leaf for leaf in outputs if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    found = {leaf.dtype for leaf in tensors}
    check_dtypes(found)


def check_dtypes(found: set[torch.dtype]) -> None:
    """Refuse values that were rounded to less than float64."""
    if found - {torch.float64}:
        raise TypeError(f"it returns {', '.join(sorted(map(str, found)))}")
