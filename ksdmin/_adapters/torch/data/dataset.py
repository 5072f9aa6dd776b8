"""Samples of a Dataset or DataLoader: read once into tensors, or fetched chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    default_collate,
)

from ksdmin._adapters.torch.data.arrays import as_pair, as_tensors, byte_count, sample_count
from ksdmin._adapters.trees import tree_leaves, tree_map

# Samples that are read at once from a Dataset without a DataLoader.
BATCH_SIZE = 64


class _Handed:
    """A batch sampler that hands out what it has been given."""

    def __init__(self) -> None:
        self.batches: Sequence[list[int]] = ()

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


@dataclass
class Fetched:
    """A Dataset, whose samples are fetched when they are needed.

    Parameters
    ----------
    dataset : Dataset
        Map-style.
    split_targets : bool
        As in `as_pair`.
    rows : array, optional
        The samples of the dataset that count; by default all.
    batch_size : int
        How many are read at once where all are read.
    options : dict
        Of the DataLoader that fetches them: its collate_fn and its workers.
    """

    dataset: Any
    split_targets: bool
    rows: npt.NDArray[np.int64] | None = None
    batch_size: int = BATCH_SIZE
    options: dict[str, Any] = field(default_factory=dict)
    _handed: _Handed = field(default_factory=_Handed)
    _loader: DataLoader[Any] | None = None
    _varies: bool = False

    @property
    def n(self) -> int:
        """How many samples there are."""
        return len(self.dataset) if self.rows is None else len(self.rows)

    @property
    def is_plain_tensors(self) -> bool:
        """Whether a batch is made of the rows of tensors, which need not be read one by one."""
        collated = self.options.get("collate_fn") is default_collate
        return type(self.dataset) is TensorDataset and collated

    @property
    def one_shape(self) -> bool:
        """Whether batches are not known to differ in shape, as padded ones do."""
        return self.options.get("collate_fn") is default_collate and not self._varies

    def batches(self, parts: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """The inputs and targets of each part (a slice, or a tensor of indices)."""
        if self._loader is None:
            # With a generator of its own: a DataLoader draws a seed, else from the global one. Its
            # workers stay: to start them takes longer than most evaluations.
            self._loader = DataLoader(
                self.dataset,
                batch_sampler=self._handed,
                generator=torch.Generator().manual_seed(0),
                **self.options | {"persistent_workers": bool(self.options.get("num_workers"))},
            )
        self._handed.batches = [self._numbers(part) for part in parts]
        wanted = [len(batch) for batch in self._handed.batches]
        return map(self._checked, self._loader, wanted)

    def _numbers(self, part: Any) -> list[int]:
        """The samples of a part, by their numbers in the dataset."""
        if isinstance(part, slice):
            part = np.arange(self.n)[part]
        elif isinstance(part, Tensor):
            part = part.cpu().numpy()
        numbers: list[int] = (part if self.rows is None else self.rows[part]).tolist()
        return numbers

    def _checked(self, batch: Any, wanted: int) -> tuple[Any, Any]:
        pair = as_pair(batch, self.split_targets)
        found = sample_count(pair)
        if found != wanted:
            raise ValueError(
                f"data: a batch of {wanted} samples has {found} rows: its collate_fn must return "
                "arrays with one row per sample"
            )
        return pair

    def targets(self) -> Iterator[Any]:
        """The targets of all samples, batch by batch."""
        return (targets for _, targets in self.batches(self._all_parts()))

    def _all_parts(self) -> list[slice]:
        size, n = self.batch_size, self.n
        return [slice(at, min(at + size, n)) for at in range(0, n, size)]

    def read(self, dtype: torch.dtype, budget: float) -> tuple[Any, Any] | None:
        """All samples as tensors, floating-point numbers in `dtype`.

        None where they would take more than `budget` bytes, judged by the first batch, or where
        batches differ in shape.
        """
        buffers, at = None, 0
        for batch in self.batches(self._all_parts()):
            tensors, size = as_tensors(batch, dtype), sample_count(batch)
            if buffers is None:
                per_sample = sum(byte_count(leaf, dtype) for leaf in tree_leaves(batch)) / size
                if per_sample * self.n > budget:
                    return None
                buffers = tree_map(lambda leaf: leaf.new_empty((self.n, *leaf.shape[1:])), tensors)
            if not _fill(buffers, at, tensors):
                self._varies = True
                return None
            at += size
        return buffers

    def __getstate__(self) -> dict[str, Any]:
        # Worker processes cannot be copied: a copy starts its own
        return {**self.__dict__, "_loader": None}


def _fill(buffers: Any, at: int, batch: Any) -> bool:
    """Write a batch into the rows from `at` on; False where it has another form."""
    leaves, values = tree_leaves(buffers), tree_leaves(batch)
    alike = len(leaves) == len(values) and all(
        leaf.shape[1:] == value.shape[1:] and leaf.dtype == value.dtype
        for leaf, value in zip(leaves, values, strict=True)
    )
    if alike:
        tree_map(lambda leaf, value: leaf[at : at + len(value)].copy_(value), buffers, batch)
    return alike


def from_dataset(data: Dataset[Any], split_targets: bool) -> Fetched:
    """The samples of a Dataset."""
    if isinstance(data, IterableDataset):
        raise TypeError(
            "data: an IterableDataset has no samples to choose sets from: use a map-style Dataset "
            "(__len__ and __getitem__), or arrays"
        )
    return Fetched(data, split_targets, options={"collate_fn": default_collate})


def from_loader(loader: DataLoader[Any], split_targets: bool) -> Fetched:
    """The samples of a DataLoader: its dataset, its collate_fn and its workers."""
    source = from_dataset(loader.dataset, split_targets)
    if loader.batch_sampler is None:
        raise TypeError(
            "data: a DataLoader with batch_size=None does not say what one sample is: give it a "
            "batch_size, or pass (inputs, targets)"
        )
    if type(loader.batch_sampler) is not BatchSampler:
        raise TypeError(_refusal(loader.batch_sampler, "batch_sampler"))
    source.rows = _restriction(loader.batch_sampler.sampler)
    source.batch_size = loader.batch_sampler.batch_size
    source.options = options_of(loader)
    return source


def options_of(loader: DataLoader[Any]) -> dict[str, Any]:
    """How a DataLoader makes a batch, whatever its samples: its collate_fn and its workers."""
    names = ("collate_fn", "num_workers", "prefetch_factor", "worker_init_fn", "timeout")
    return {name: getattr(loader, name) for name in (*names, "multiprocessing_context")}


def _restriction(sampler: Iterable[int]) -> npt.NDArray[np.int64] | None:
    """The samples that a sampler restricts the dataset to; None: their order only is its own."""
    if isinstance(sampler, RandomSampler) and sampler.replacement:
        raise TypeError(_refusal(sampler, "sampler"))
    if isinstance(sampler, (SequentialSampler, RandomSampler, DistributedSampler)):
        return None
    if isinstance(sampler, SubsetRandomSampler):
        return np.array(list(sampler.indices), dtype=np.int64)
    if isinstance(sampler, (list, tuple, range, np.ndarray, Tensor)):
        return np.array([int(row) for row in sampler], dtype=np.int64)
    raise TypeError(_refusal(sampler, "sampler"))


def _refusal(sampler: Any, kind: str) -> str:
    return (
        f"data: the DataLoader's {kind} {type(sampler).__name__} decides how often each sample is "
        "drawn, which changes the objective. Give weights as sample_weight=, or restrict the "
        "samples with a torch.utils.data.Subset, and leave the DataLoader's sampler out"
    )
