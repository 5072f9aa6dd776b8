"""Samples in chunks, brought to the device of the model from wherever they are kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from ksdmin._adapters.arguments import as_weights
from ksdmin._adapters.flat_problem import host_indices, picked_rows, seed_for_set
from ksdmin._adapters.torch.costs import free_budget
from ksdmin._adapters.torch.data.arrays import (
    Arrays,
    Fetched,
    as_pair,
    as_tree,
    cast,
    from_dataset,
    from_loader,
    same,
    slices,
    take_rows,
)
from ksdmin._adapters.torch.data.streaming import (
    KeptSets,
    Prefetcher,
    gathered,
    to_device,
    uploaded,
)
from ksdmin._adapters.torch.kernels import Chunk
from ksdmin._adapters.trees import tree_leaves, tree_map
from ksdmin._problem.subsets import WHOLE, Drawn, Subsets
from ksdmin._problem.values import changed

Source = Arrays | Fetched
"""Where samples come from."""


class Samples:
    """Inputs and targets; ``chunks`` brings them to the device piece by piece."""

    def __init__(
        self,
        data: Any,  # pair, dict, Dataset or DataLoader: as :func:`ksdmin.from_torch` takes them
        device: torch.device,  # where the model is
        dtype: torch.dtype,  # that of the model; floating-point data are brought to it
        *,
        # Whether the data consist of inputs and targets. Otherwise all are inputs, and the targets
        # are an empty tuple.
        split_targets: bool = True,
        sample_weight: Any = None,  # a weight for each sample
        # Data of so many bytes are put on the device at once; of more, chunk by chunk. By default
        # what `free_budget` says.
        memory_budget: float | None = None,
    ) -> None:
        self._device, self.dtype = device, dtype
        source = as_source(data, split_targets)
        self.n = source.n
        if self.n == 0:
            raise ValueError("data: there are no samples")
        weights = None if sample_weight is None else as_weights(sample_weight, self.n)
        budget = free_budget(device) if memory_budget is None else memory_budget
        self._source, self._streamed = _brought(source, device, dtype, budget)
        # Whether the samples have one shape in all chunks, as far as is known
        self.one_shape = self._source.one_shape
        # Where the indices and the weights are: with the samples
        self._home = torch.device("cpu") if self._streamed else device
        given = torch.ones(self.n) if weights is None else torch.from_numpy(weights)
        self._weights = given.to(self._home, torch.float64)
        self.mean_weight = 1.0  # what the weights have been divided by
        if weights is not None:
            self._divide_weights(self._weights.mean())
        self._prefetcher = Prefetcher()
        self._kept = KeptSets(budget)

    def in_dtype(self, dtype: torch.dtype) -> Samples:
        """The same samples in another dtype: converted chunk by chunk, not kept twice."""
        fresh = {"_prefetcher": Prefetcher(), "_kept": KeptSets(self._kept.budget)}
        return self if dtype == self.dtype else changed(self, dtype=dtype, **fresh)

    @property
    def is_weighted(self) -> bool:
        """Whether the loss is another one than the mean over the samples."""
        return not bool((self._weights == 1).all())

    @property
    def has_equal_weights(self) -> bool:
        """Whether all samples have the same weight."""
        return bool((self._weights == self._weights[0]).all())

    @property
    def subsets(self) -> Subsets:
        """The sets that a run draws by default."""
        return Subsets(self.n)

    def indices(self, idx: Any) -> Any:
        """A set as the methods below take it: the whole slice, or an int64 tensor."""
        if isinstance(idx, slice):
            rows = range(*idx.indices(self.n))
            return WHOLE if len(rows) == self.n else self._indices(list(rows))
        return self._indices(idx)

    def _indices(self, idx: Any) -> Tensor:
        if not isinstance(idx, Tensor) or "cpu" in (idx.device.type, self._home.type):
            idx = idx.cpu() if isinstance(idx, Tensor) else idx
            return torch.from_numpy(host_indices(idx, self.n)).to(self._home)
        # On a device the indices themselves are not checked: that would wait for it
        mask = idx.dtype == torch.bool and idx.shape == (self.n,)
        rows = idx.nonzero()[:, 0] if mask else idx
        whole_numbers = not rows.is_floating_point() and rows.dtype != torch.bool
        if rows.ndim != 1 or rows.numel() == 0 or not whole_numbers:
            raise ValueError(
                "a set of samples must be a vector of at least one index, or of one bool for each "
                f"of the {self.n} samples, not {rows.dtype} of shape {tuple(rows.shape)}"
            )
        return rows.to(self._home, torch.int64)

    def first(self, start: int, stop: int) -> Any:
        """The samples from `start` on, up to `stop`, or to the last one: a set."""
        return torch.arange(start, min(stop, self.n))

    def size(self, idx: Any) -> int:
        """How many samples `idx` names."""
        return self.n if isinstance(idx, slice) else len(idx)

    def seed(self, seed: int, idx: Any) -> int:
        """A seed for a set: always the same for the same set."""
        return seed_for_set(seed, idx)

    def picked(self, idx: Any, count: int, seed: int) -> Any:
        """At most `count` samples of a set: for the same seed and set always the same ones."""
        size = self.size(idx)
        if size <= count:
            return idx
        rows = torch.from_numpy(picked_rows(size, count, self.seed(seed, idx))).to(self._home)
        return rows if isinstance(idx, slice) else idx[rows]

    def forget(self) -> None:
        """Drop the sets that are kept for a run: the data may have changed since."""
        self._kept.clear()

    def normalize_weights(self, sample_weights: Callable[[Any], Tensor]) -> None:
        """Divide by the mean of the weights that the samples have in the loss's own mean.

        The losses contain the weights already; torch divides their sum by that of the weights.
        """
        parts = [sample_weights(self._move(y)).to(self._home) for y in self._source.targets()]
        self._divide_weights((torch.cat(parts).to(torch.float64) * self._weights).mean())

    def check_weights(self) -> None:
        """Refuse samples none of which counts."""
        if not self.mean_weight > 0:
            raise ValueError("data: every target is ignored, or has weight zero")

    def set_mean_weight(self, mean: float) -> None:
        """Divide by another mean: that of more samples than are here."""
        if mean != self.mean_weight:
            self._weights = self._weights * (self.mean_weight / mean) if mean > 0 else self._weights
            self.mean_weight = mean

    def _divide_weights(self, mean: Tensor) -> None:
        self.mean_weight *= float(mean)
        if self.mean_weight > 0:
            self._weights = self._weights / mean

    def take(self, idx: Any) -> tuple[Any, Any]:
        """The inputs and targets of the samples `idx`, on the device."""
        inputs, targets, _ = next(self.chunks(idx, self.size(idx)))
        return inputs, targets

    def chunks(self, idx: Any, size: int) -> Iterator[Chunk]:
        """The samples `idx`, at most `size` at a time, with their weights."""
        parts = self._parts(idx, size)
        if not self._streamed:
            return self._moved(self._at_home(parts))
        if isinstance(idx, slice):  # it would be in memory if it fitted
            return self._brought(parts)
        key = size, blake2b(idx.numpy()).digest()
        return self._kept.chunks(key, len(parts), partial(self._brought, parts))

    def batches(self, idx: Any, rows: int, seed: int) -> Iterator[Chunk]:
        """The samples `idx` in batches of exactly `rows`: always the same ones for the same set.

        Of several batches, each has samples from everywhere in the set. The last one is filled up
        with other samples of the set, of weight zero.
        """
        size = self.size(idx)
        if size == rows:
            yield from self.chunks(idx, rows)
            return
        order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
        filled = torch.cat([order, order[: -size % rows]]).to(self._home)
        chosen = filled if isinstance(idx, slice) else idx[filled]
        for i, (inputs, targets, w) in enumerate(self.chunks(chosen, rows)):
            if (i + 1) * rows > size:
                w = w * (torch.arange(rows, device=w.device) < size - i * rows)
            yield inputs, targets, w

    def _brought(self, parts: list[Any]) -> Iterator[Chunk]:
        """Chunks on the device, made ahead."""
        if self._device.type == "cuda":
            return self._moved(self._uploaded(parts))
        return self._ahead(self._moved(self._at_home(parts)), len(parts))

    def _parts(self, idx: Any, size: int) -> list[Any]:
        rows = slices(self.size(idx), size)
        return rows if isinstance(idx, slice) else [idx[part] for part in rows]

    def _at_home(self, parts: list[Any]) -> Iterator[Chunk]:
        """Chunks where the samples are kept."""
        for part, pair in zip(parts, self._source.batches(parts), strict=True):
            yield *pair, self._weights[part]

    def _ahead(self, chunks: Iterator[Chunk], count: int) -> Iterator[Chunk]:
        """The same chunks, the next ones of which are made in a thread.

        A Dataset is asked in that thread only, so never twice at the same time.
        """
        if count == 1 and isinstance(self._source, Arrays):
            return chunks
        return self._prefetcher.ahead(partial(next, chunks) for _ in range(count))

    def _uploaded(self, parts: list[Any]) -> Iterator[Chunk]:
        """Chunks on a CUDA device, the next of which are gathered and copied meanwhile."""
        if isinstance(self._source, Arrays):
            samples = *self._source.pair, self._weights
            counts = [len(self._weights[part]) for part in parts]
            slots = gathered(self._prefetcher, samples, parts, counts, self.dtype)
            return uploaded((partial(slot.copy, self._device) for slot in slots), self._device)
        ahead = self._ahead(self._at_home(parts), len(parts))
        pinned = (tree_map(Tensor.pin_memory, chunk) for chunk in ahead)
        return uploaded((partial(_copied, chunk, self._device) for chunk in pinned), self._device)

    def _moved(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        for inputs, targets, w in chunks:
            yield self._move(inputs), self._move(targets), w

    def _move(self, tree: Any) -> Any:
        return tree_map(
            lambda leaf: cast(leaf.to(self._device, non_blocking=True), self.dtype), tree
        )


def _copied(chunk: Chunk, device: torch.device) -> Chunk:
    copies: Chunk = to_device(chunk, device)[0]
    return copies


def is_function_of_epoch(data: Any) -> bool:
    """Whether data are a function that returns the samples of an iteration."""
    return callable(data) and not isinstance(data, Dataset)


def samples_of(
    data: Any,
    like: Tensor,
    split_targets: bool,
    memory_budget: float | None,
    sample_weight: Any = None,
) -> Samples | EpochSamples:
    """The data of :func:`ksdmin.from_torch`, in the dtype and on the device of a tensor."""
    make = partial(
        Samples,
        device=like.device,
        dtype=like.dtype,
        split_targets=split_targets,
        memory_budget=memory_budget,
    )
    if is_function_of_epoch(data):
        return EpochSamples(data, make)
    return make(data, sample_weight=sample_weight)


def as_source(data: Any, split_targets: bool) -> Source:
    """The data of :func:`ksdmin.from_torch` in one of two forms: arrays, or a Dataset."""
    if isinstance(data, DataLoader):
        source = from_loader(data, split_targets)
        if not source.is_plain_tensors:
            return source
        data, rows = source.dataset.tensors, source.rows
        data = data if rows is None else take_rows(data, torch.from_numpy(rows))
    if isinstance(data, TensorDataset):
        data = data.tensors
    if isinstance(data, Dataset):
        return from_dataset(data, split_targets)
    return Arrays(as_pair(data, split_targets))


def _brought(
    source: Source, device: torch.device, dtype: torch.dtype, budget: float
) -> tuple[Source, bool]:
    """A Dataset read into tensors, and arrays brought to the device, where they fit there.

    Otherwise they are streamed: the second value is whether they are.
    """
    here, host = device.type == "cpu", torch.device("cpu")
    if isinstance(source, Fetched):
        pair = source.read(dtype, budget if here else free_budget(host))
        if pair is None:
            return source, True
        source = Arrays(pair)
    if source.far_bytes(device, dtype) <= budget:
        return source.brought_to(device, dtype), False
    return source.on_host() if device.type == "cuda" else source, True


# Samples that a function of the epoch returns: a new set for each iteration of a run


# Sets that are kept: that of this iteration, and the one before.
KEPT_SETS = 2


class EpochSet(Drawn):
    """The samples that the function returned, or some of them."""

    def __init__(
        self,
        data: Any,  # what the function returned
        samples: Samples,
        rows: Any = WHOLE,
        # The epoch, by which a saved run draws the whole set again; None of a part.
        drawn_in: int | None = None,
    ) -> None:
        self.data, self.samples, self.rows, self.drawn_in = data, samples, rows, drawn_in
        self.shape = (samples.size(rows),)  # as of a vector of indices

    def in_dtype(self, dtype: torch.dtype) -> EpochSet:
        """The same samples in a dtype."""
        samples = self.samples.in_dtype(dtype)
        if samples is self.samples:
            return self
        return EpochSet(self.data, samples, self.rows, self.drawn_in)

    def is_again(self, other: Any) -> bool:
        """Whether another set has the same samples; for arrays, the same numbers."""
        if not isinstance(other, EpochSet) or other.rows is not self.rows:
            return False
        return other.data is self.data or _equal(other.data, self.data)

    def part(self, rows: Any) -> EpochSet:
        """Some of its samples."""
        return EpochSet(self.data, self.samples, rows)


class EpochSamples:
    """What `Samples` is for one set of data, for a function ``data(epoch)``.

    A set is an `EpochSet`. The whole set, where one is asked for, is that of epoch 0.
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
        """The same for a model of another dtype, which accepts the sets of this one, too."""
        return EpochSamples(self._data, partial(self._make, dtype=dtype))

    @property
    def is_weighted(self) -> bool:
        return self._class_weights is not None

    @property
    def subsets(self) -> Subsets:
        """The sets of a run: all samples of the epoch, for A, B and C."""
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
        """A set as the other methods take it; also from what the function returned."""
        if isinstance(idx, EpochSet):
            return idx.in_dtype(self.dtype)
        whole = isinstance(idx, slice) and idx == WHOLE
        return self._at(0) if whole else self._set_of(idx)

    def first(self, start: int, stop: int) -> EpochSet:
        """The samples of epoch 0 from `start` on, up to `stop`, or to the last one."""
        whole = self._at(0)
        return whole.part(whole.samples.indices(whole.samples.first(start, stop)))

    def size(self, idx: EpochSet) -> int:
        return idx.shape[0]

    def seed(self, seed: int, idx: EpochSet) -> int:
        """A seed for a set, which is that of all sets of its size."""
        return seed_for_set(seed, torch.tensor(idx.shape))

    def picked(self, idx: EpochSet, count: int, seed: int) -> EpochSet:
        rows = idx.samples.picked(idx.rows, count, seed)
        return idx if rows is idx.rows else idx.part(rows)

    def forget(self) -> None:
        """The sets of an epoch are kept as long as the set itself."""

    def normalize_weights(self, sample_weights: Callable[[Any], Tensor]) -> None:
        """Divide, in every set, by the mean of the weights in the loss's own mean."""
        self._class_weights = sample_weights
        self._kept.clear()
        self._at(0)  # raises for an empty set

    def check_weights(self) -> None:
        """Every set is checked when it is made."""

    def take(self, idx: EpochSet) -> tuple[Any, Any]:
        return idx.samples.take(idx.rows)

    def chunks(self, idx: Any, size: int) -> Iterator[Chunk]:
        whole = self.indices(idx)
        return whole.samples.chunks(whole.rows, size)

    def batches(self, idx: EpochSet, rows: int, seed: int) -> Iterator[Chunk]:
        return idx.samples.batches(idx.rows, rows, seed)


def _equal(one: Any, other: Any) -> bool:
    """Whether two sets of arrays hold the same numbers; a Dataset is the same as itself only."""
    if _is_dataset(one) or _is_dataset(other):
        return False
    try:
        first, second = (tree_leaves(as_tree(data)) for data in (one, other))
    except TypeError:  # no data at all, which is said where they are read
        return False
    return len(first) == len(second) and all(map(same, first, second))


def _is_dataset(data: Any) -> bool:
    return isinstance(data, (Dataset, DataLoader))
