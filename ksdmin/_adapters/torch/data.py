"""Samples in chunks, brought to the device of the model from wherever they are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset, default_collate

from ksdmin._adapters.flat_problem import host_indices
from ksdmin._adapters.seeds import picked_rows, seed_for_set
from ksdmin._adapters.torch.kernels import Chunk
from ksdmin._problem.subsets import WHOLE

# Targets that are read at once, where their weights are summed before the run: large enough to be
# fast, and small in memory even where a target is an image.
TARGETS_PER_READ = 4096


class Samples:
    """Inputs and targets; ``chunks`` brings them to the device piece by piece.

    Parameters
    ----------
    data : pair or Dataset
        (inputs, targets) of tensors, or numpy arrays (memory-mapped ones are read piece by
        piece); either may be a tuple of several. Or a Dataset of such pairs.
    device : torch.device
        Where the model is.
    dtype : torch.dtype
        That of the model; floating-point data are brought to it.
    """

    def __init__(self, data: Any, device: torch.device, dtype: torch.dtype) -> None:
        if isinstance(data, TensorDataset):
            data = data.tensors
        self._device, self._dtype = device, dtype
        self._dataset = data if isinstance(data, Dataset) else None
        if self._dataset is not None:
            if isinstance(data, IterableDataset):
                raise TypeError("data: an IterableDataset has no samples to choose sets from")
            self.n = len(self._dataset)  # type: ignore[arg-type]
        else:
            self._parts = tuple(_tree(part) for part in _pair(data))
            self.n = _common_length(self._parts)
        if self.n == 0:
            raise ValueError("data: there are no samples")
        self._weights = torch.ones(self.n, dtype=torch.float64, device=device)

    def indices(self, idx: Any) -> Any:
        """A set as the methods below take it: the whole slice, or an int64 tensor."""
        if isinstance(idx, slice):
            rows = range(*idx.indices(self.n))
            return WHOLE if len(rows) == self.n else self._indices(list(rows))
        return self._indices(idx)

    def _indices(self, idx: Any) -> Tensor:
        if not isinstance(idx, Tensor) or idx.device.type == "cpu":
            return torch.from_numpy(host_indices(idx, self.n)).to(self._device)
        # On a device the indices themselves are not checked: that would wait for it
        mask = idx.dtype == torch.bool and idx.shape == (self.n,)
        rows = idx.nonzero()[:, 0] if mask else idx
        whole_numbers = not rows.is_floating_point() and rows.dtype != torch.bool
        if rows.ndim != 1 or rows.numel() == 0 or not whole_numbers:
            raise ValueError(
                "a set of samples must be a vector of at least one index, or of one bool for each "
                f"of the {self.n} samples, not {rows.dtype} of shape {tuple(rows.shape)}"
            )
        return rows.to(self._device, torch.int64)

    def size(self, idx: Any) -> int:
        """How many samples `idx` names."""
        return self.n if isinstance(idx, slice) else len(idx)

    def picked(self, idx: Any, count: int, seed: int) -> Any:
        """At most `count` samples of a set: for the same seed and set always the same ones."""
        size = self.size(idx)
        if size <= count:
            return idx
        rows = picked_rows(size, count, seed_for_set(seed, idx))
        picked = torch.from_numpy(rows).to(self._device)
        return picked if isinstance(idx, slice) else idx[picked]

    def normalize_weights(self, sample_weights: Callable[[Any], Tensor]) -> None:
        """Divide by the mean of the weights that the samples have in the loss's own mean.

        The losses contain the weights already; torch divides their sum by that of the weights.
        """
        parts = []
        for at in range(0, self.n, TARGETS_PER_READ):
            targets = self._take(slice(at, at + TARGETS_PER_READ), [1])[0]
            parts.append(sample_weights(targets).to(torch.float64))
        mean = torch.cat(parts).mean()
        if not float(mean) > 0:
            raise ValueError("data: every target is ignored, or has weight zero")
        self._weights = self._weights / mean

    def chunks(self, idx: Any, size: int) -> Iterator[Chunk]:
        """The samples `idx`, at most `size` at a time, with their weights."""
        for at in range(0, self.size(idx), size):
            whole = isinstance(idx, slice)
            part = slice(at, min(at + size, self.n)) if whole else idx[at : at + size]
            yield (*self.take(part), self._weights[part])

    def take(self, idx: Any) -> tuple[Any, Any]:
        """The inputs and targets of the samples `idx`, on the device."""
        inputs, targets = self._take(idx, [0, 1])
        return inputs, targets

    def _take(self, idx: Any, which: list[int]) -> list[Any]:
        """Inputs (0), targets (1) or both."""
        if self._dataset is None:
            return [self._move(_rows(self._parts[i], idx)) for i in which]
        rows = range(*idx.indices(self.n)) if isinstance(idx, slice) else idx.tolist()
        items = [_pair(self._dataset[row]) for row in rows]
        return [self._move(_tree(default_collate([item[i] for item in items]))) for i in which]

    def _move(self, tree: Any) -> Any:
        if isinstance(tree, tuple):
            return tuple(self._move(part) for part in tree)
        dtype = self._dtype if tree.is_floating_point() else tree.dtype
        return tree.to(self._device, dtype, non_blocking=True)


def _pair(data: Any) -> Any:
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        of = f" of {len(data)}" if isinstance(data, (tuple, list)) else ""
        raise TypeError(
            "data: expected (inputs, targets) or a Dataset of such pairs (several inputs as a "
            f"tuple), not {type(data).__name__}{of}"
        )
    return data


def _tree(data: Any) -> Any:
    if isinstance(data, (tuple, list)):
        return tuple(_tree(part) for part in data)
    if isinstance(data, (Tensor, np.ndarray)):
        return data
    raise TypeError(f"data: expected tensors or numpy arrays, not {type(data).__name__}")


def _common_length(trees: tuple[Any, ...]) -> int:
    """How many samples all the arrays have."""
    lengths = {len(leaf) for tree in trees for leaf in _leaves(tree)}
    if len(lengths) != 1:
        raise ValueError(f"data: inputs and targets differ in length: {sorted(lengths)}")
    return lengths.pop()


def _leaves(tree: Any) -> list[Any]:
    return [leaf for part in tree for leaf in _leaves(part)] if isinstance(tree, tuple) else [tree]


def _rows(tree: Any, idx: Any) -> Any:
    if isinstance(tree, tuple):
        return tuple(_rows(part, idx) for part in tree)
    if isinstance(tree, np.ndarray):
        rows = idx if isinstance(idx, slice) else idx.cpu().numpy()
        return torch.from_numpy(np.array(tree[rows]))
    return tree[idx] if isinstance(idx, slice) else tree[idx.to(tree.device)]
