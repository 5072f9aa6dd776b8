"""Samples that a function of the epoch returns: another set for each iteration of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ksdmin._adapters.seeds import seed_for_set
from ksdmin._adapters.torch.data.samples import Samples
from ksdmin._adapters.torch.data.trees import as_tree, same_trees
from ksdmin._adapters.torch.kernels import Chunk
from ksdmin._problem.subsets import WHOLE, Drawn, Subsets

# Sets that are kept: that of the iteration, and the one before.
KEPT_SETS = 2


class EpochSet(Drawn):
    """The samples that the function returned, or some of them.

    Attributes
    ----------
    data : object
        What the function returned.
    shape : tuple
        (number of samples,), as of a vector of indices.
    drawn_in : int or None
        The epoch, by which a saved run draws the whole set again; None of a part.
    """

    def __init__(
        self, data: Any, samples: Samples, rows: Any = WHOLE, drawn_in: int | None = None
    ) -> None:
        self.data, self.samples, self.rows, self.drawn_in = data, samples, rows, drawn_in
        self.shape = (samples.size(rows),)

    def in_dtype(self, dtype: torch.dtype) -> EpochSet:
        """The same samples in a dtype."""
        samples = self.samples.in_dtype(dtype)
        if samples is self.samples:
            return self
        return EpochSet(self.data, samples, self.rows, self.drawn_in)

    def is_again(self, other: Any) -> bool:
        """Whether another set has the same samples: of arrays the same numbers."""
        if not isinstance(other, EpochSet) or other.rows is not self.rows:
            return False
        return other.data is self.data or _equal(other.data, self.data)

    def part(self, rows: Any) -> EpochSet:
        """Some of its samples."""
        return EpochSet(self.data, self.samples, rows)


class EpochSamples:
    """What `Samples` is for one set of data, for a function ``data(epoch)``.

    A set is an `EpochSet`. The whole set, where one is asked for, is that of epoch 0.

    Parameters
    ----------
    data : callable
        epoch -> data of any form that `Samples` takes.
    make : callable
        data -> Samples.
    """

    def __init__(self, data: Callable[[int], Any], make: Callable[..., Samples]) -> None:
        self._data, self._make = data, make
        self._kept: deque[EpochSet] = deque(maxlen=KEPT_SETS)
        self._class_weights: Callable[[Any], Tensor] | None = None
        first = self._at(0)
        again = data(0)
        if not (again is first.data or _is_dataset(again) or _equal(again, first.data)):
            raise ValueError(
                "data: the function returned other samples when called with epoch 0 again: it must "
                "return the same for the same epoch. Seed what it draws with the epoch"
            )
        self.n = first.shape[0]
        self.one_shape, self.has_equal_weights = first.samples.one_shape, True
        self.dtype = first.samples.dtype

    def in_dtype(self, dtype: torch.dtype) -> EpochSamples:
        """The same for a model of another dtype; it takes the sets of this one, too."""
        return EpochSamples(self._data, partial(self._make, dtype=dtype))

    @property
    def is_weighted(self) -> bool:
        """Whether the loss is another one than the mean over the samples."""
        return self._class_weights is not None

    @property
    def subsets(self) -> Subsets:
        """The sets that a run takes: all samples of the epoch, for the gradient and the rest."""
        return Subsets(self._draw)

    def _draw(self, epoch: int, rng: Any) -> tuple[EpochSet, ...]:
        return (self._at(epoch),) * 3

    def _at(self, epoch: int) -> EpochSet:
        return self._set_of(self._data(epoch), epoch)

    def _set_of(self, data: Any, epoch: int | None = None) -> EpochSet:
        """The set of what the function returned; for the same object it is made once."""
        for kept in self._kept:
            if kept.data is data:
                return kept
        samples = self._make(data)
        if self._class_weights is not None:
            samples.normalize_weights(self._class_weights)
            samples.check_weights()
        self._kept.append(EpochSet(data, samples, drawn_in=epoch))
        return self._kept[-1]

    def indices(self, idx: Any) -> EpochSet:
        """A set as the methods below take it; also from what the function returned."""
        if isinstance(idx, EpochSet):
            return idx.in_dtype(self.dtype)
        whole = isinstance(idx, slice) and idx == WHOLE
        return self._at(0) if whole else self._set_of(idx)

    def first(self, start: int, stop: int) -> EpochSet:
        """The samples of epoch 0 from `start` on, up to `stop`, or to the last one."""
        whole = self._at(0)
        return whole.part(whole.samples.indices(whole.samples.first(start, stop)))

    def size(self, idx: EpochSet) -> int:
        """How many samples a set has."""
        return idx.shape[0]

    def seed(self, seed: int, idx: EpochSet) -> int:
        """A seed for a set, which is that of all sets of its size."""
        return seed_for_set(seed, torch.tensor(idx.shape))

    def picked(self, idx: EpochSet, count: int, seed: int) -> EpochSet:
        """At most `count` samples of a set: for the same seed and set always the same ones."""
        rows = idx.samples.picked(idx.rows, count, seed)
        return idx if rows is idx.rows else idx.part(rows)

    def forget(self) -> None:
        """The sets of an epoch are kept as long as the set itself."""

    def normalize_weights(self, sample_weights: Callable[[Any], Tensor]) -> None:
        """Divide, in every set, by the mean of the weights in the loss's own mean."""
        self._class_weights = sample_weights
        self._kept.clear()
        self._at(0)  # one without any is refused here

    def check_weights(self) -> None:
        """Every set is checked when it is made."""

    def take(self, idx: EpochSet) -> tuple[Any, Any]:
        """The inputs and targets of a set, on the device."""
        return idx.samples.take(idx.rows)

    def chunks(self, idx: Any, size: int) -> Iterator[Chunk]:
        """The samples of a set, at most `size` at a time, with their weights."""
        whole = self.indices(idx)
        return whole.samples.chunks(whole.rows, size)

    def batches(self, idx: EpochSet, rows: int, seed: int) -> Iterator[Chunk]:
        """The samples of a set in batches of exactly `rows`: see :meth:`Samples.batches`."""
        return idx.samples.batches(idx.rows, rows, seed)


def _equal(one: Any, other: Any) -> bool:
    """Whether two sets of arrays hold the same numbers; a Dataset is the same as itself only."""
    if _is_dataset(one) or _is_dataset(other):
        return False
    try:
        return same_trees(as_tree(one), as_tree(other))
    except TypeError:  # no data at all, which is said where they are read
        return False


def _is_dataset(data: Any) -> bool:
    return isinstance(data, (Dataset, DataLoader))
