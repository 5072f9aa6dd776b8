"""Samples as they are given: tensors, numpy arrays, memory-mapped ones among them, trees of these.

Those of a Dataset or DataLoader are read once into tensors, or fetched chunk by chunk.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

from ksdmin._adapters.arguments import from_frame, refuse_sparse, sample_count
from ksdmin._adapters.trees import is_namedtuple, tree_leaves, tree_map

TARGET_NAMES = ("labels", "label", "targets", "target", "y")
"""Under which of these names the targets are in a dict of fields."""


def as_tree(data: Any) -> Any:
    """The data with lists as tuples and mappings as dicts; its leaves are tensors and arrays."""
    data = from_frame(data)
    refuse_sparse(data)
    if isinstance(data, Mapping):
        return {key: as_tree(part) for key, part in data.items()}
    if is_namedtuple(data):
        return type(data)(*map(as_tree, data))
    if isinstance(data, (tuple, list)):
        return tuple(map(as_tree, data))
    if isinstance(data, Tensor) and data.ndim > 0:
        return data
    if isinstance(data, np.ndarray) and data.ndim > 0 and data.dtype.kind in "biufc":
        return data
    kind = "one number" if getattr(data, "shape", None) == () else type(data).__name__
    if isinstance(data, np.ndarray) and data.ndim > 0:
        kind = f"an array of {data.dtype}"
    mend = ". Convert a list of numbers: torch.tensor(X)" if isinstance(data, (float, int)) else ""
    raise TypeError(
        f"data: expected tensors or numpy arrays with one row per sample, not {kind}; several of "
        f"them in tuples, lists or dicts{mend}"
    )


def as_pair(data: Any, split_targets: bool) -> tuple[Any, Any]:
    """(inputs, targets) as trees; the targets of a dict are the field with a name of theirs.

    Without `split_targets` all of it is inputs, for a model that returns its own loss.
    """
    if not split_targets:
        return as_tree(data), ()
    if isinstance(data, Mapping):
        return _split_fields(data)
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        of = f" of {len(data)}" if isinstance(data, (tuple, list)) else ""
        raise TypeError(
            "data: expected (inputs, targets), a dict with the targets under a name like 'labels', "
            "a Dataset or DataLoader of such, or a function of the epoch (several inputs as a "
            f"tuple), not {type(data).__name__}{of}"
        )
    return as_tree(data[0]), as_tree(data[1])


def _split_fields(data: Mapping[Any, Any]) -> tuple[Any, Any]:
    found = [name for name in TARGET_NAMES if name in data]
    if len(found) != 1 or len(data) == 1:
        missing = "inputs" if len(found) == 1 else "target" if not found else "single target"
        raise TypeError(
            f"data: a dict with the fields {', '.join(map(repr, data))} has no {missing}: expected "
            f"inputs, and exactly one of {', '.join(map(repr, TARGET_NAMES))}. Give (inputs, "
            "targets) instead"
        )
    inputs = {name: part for name, part in data.items() if name != found[0]}
    return as_tree(inputs), as_tree(data[found[0]])


def take_rows(tree: Any, idx: Any) -> Any:
    """The rows `idx` (a slice, or a tensor of indices) of every array, as tensors."""
    return tree_map(lambda leaf: _rows(leaf, idx), tree)


def _rows(leaf: Any, idx: Any) -> Tensor:
    if isinstance(leaf, np.ndarray):
        rows = idx if isinstance(idx, slice) else idx.cpu().numpy()
        return torch.from_numpy(np.array(leaf[rows]))
    taken: Tensor = leaf[idx] if isinstance(idx, slice) else leaf[idx.to(leaf.device)]
    return taken


def as_tensor(leaf: Any) -> Tensor:
    """A copy of an array, which may be read-only."""
    return leaf if isinstance(leaf, Tensor) else torch.from_numpy(np.array(leaf))


def cast(leaf: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor, in `dtype` if it holds floating-point numbers."""
    return leaf.to(dtype) if leaf.is_floating_point() else leaf


def byte_count(leaf: Any, dtype: torch.dtype) -> int:
    """What an array takes once its floating-point numbers are in `dtype`."""
    empty = as_tensor(leaf[:0])
    itemsize = dtype.itemsize if empty.is_floating_point() else empty.element_size()
    entries = leaf.numel() if isinstance(leaf, Tensor) else leaf.size
    return int(entries) * itemsize


def same(one: Any, other: Any) -> bool:
    """Whether two arrays hold the same numbers (a NaN equals a NaN)."""
    a, b = as_tensor(one), as_tensor(other)
    return a.shape == b.shape and bool(((a == b) | (a != a) & (b != b)).all())


def slices(n: int, size: int) -> list[slice]:
    """All of `n` rows, at most `size` at a time."""
    return [slice(at, min(at + size, n)) for at in range(0, n, size)]


# Where they are, and how they are brought to a device


# Targets that are read at once, where their weights are summed before the run: large enough to be
# fast, and small in memory even where a target is an image.
TARGETS_PER_READ = 4096


class Arrays:
    """Inputs and targets in arrays, one row per sample."""

    one_shape = True

    def __init__(self, pair: tuple[Any, Any]) -> None:
        self.pair, self.n = pair, sample_count(tree_leaves(pair))

    def batches(self, parts: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """The inputs and targets of each part (a slice, or a tensor of indices)."""
        inputs, targets = self.pair
        return ((take_rows(inputs, part), take_rows(targets, part)) for part in parts)

    def targets(self) -> Iterator[Any]:
        """The targets of all samples, some at a time."""
        return (take_rows(self.pair[1], part) for part in slices(self.n, TARGETS_PER_READ))

    def far_bytes(self, device: torch.device, dtype: torch.dtype) -> int:
        """The bytes, on the device, of the arrays that are elsewhere: on the host, or a disk."""
        leaves = tree_leaves(self.pair)
        return sum(byte_count(leaf, dtype) for leaf in leaves if _is_far(leaf, device))

    def brought_to(self, device: torch.device, dtype: torch.dtype) -> Arrays:
        """The same, with these arrays on the device; the others stay as they are."""

        def bring(leaf: Any) -> Any:
            if not _is_far(leaf, device):
                return leaf
            return cast(as_tensor(leaf), dtype).to(device)

        return Arrays(tree_map(bring, self.pair))

    def on_host(self) -> Arrays:
        """The same on the host, as tensors that share the arrays' memory: torch copies faster."""
        return Arrays(tree_map(_shared, self.pair))


def _is_far(leaf: Any, device: torch.device) -> bool:
    if isinstance(leaf, Tensor):
        return leaf.device.type != device.type
    return device.type != "cpu" or _is_mapped(leaf)


def _is_mapped(array: Any) -> bool:
    """Whether an array, or what it is a view of, is memory-mapped."""
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False


def _shared(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf.detach().cpu()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
            return torch.from_numpy(np.asarray(leaf))
    except (TypeError, ValueError):  # negative strides, or a foreign byte order
        return leaf


# Datasets and loaders of torch


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
    """A Dataset, whose samples are fetched when they are needed."""

    dataset: Any  # map-style
    split_targets: bool  # as in `as_pair`
    rows: npt.NDArray[np.int64] | None = None  # the samples that count; None: all
    batch_size: int = BATCH_SIZE  # how many are read at once where all are read
    # Of the DataLoader that fetches them: its collate_fn and its workers.
    options: dict[str, Any] = field(default_factory=dict)
    _handed: _Handed = field(default_factory=_Handed)
    _loader: DataLoader[Any] | None = None
    _varies: bool = False

    @property
    def n(self) -> int:
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
        found = sample_count(tree_leaves(pair))
        if found != wanted:
            raise ValueError(
                f"data: a batch of {wanted} samples has {found} rows: its collate_fn must return "
                "arrays with one row per sample"
            )
        return pair

    def targets(self) -> Iterator[Any]:
        """The targets of all samples, batch by batch."""
        return (targets for _, targets in self.batches(slices(self.n, self.batch_size)))

    def read(self, dtype: torch.dtype, budget: float) -> tuple[Any, Any] | None:
        """All samples as tensors, floating-point numbers in `dtype`.

        None where they would take more than `budget` bytes, judged by the first batch, or where
        batches differ in shape.
        """
        buffers, at = None, 0
        for batch in self.batches(slices(self.n, self.batch_size)):
            tensors = tree_map(lambda leaf: cast(as_tensor(leaf), dtype), batch)
            size = sample_count(tree_leaves(batch))
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
