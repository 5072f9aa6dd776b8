"""Samples in chunks, on the device of the model, wherever they are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset, default_collate

from ksdmin._adapters.torch_kernels import Chunk


class Samples:
    """Inputs and targets; ``chunks`` brings them to the device piece by piece.

    Parameters
    ----------
    data : pair or Dataset
        (inputs, targets) of tensors, or numpy arrays (memory-mapped ones are read piece by
        piece); either may be a tuple of several. Or a Dataset of such pairs.
    device : torch.device
        Where the model is.
    """

    def __init__(self, data: Any, device: torch.device) -> None:
        if isinstance(data, TensorDataset):
            data = data.tensors
        self._device = device
        self._dataset = data if isinstance(data, Dataset) else None
        if self._dataset is not None:
            self.n = len(self._dataset)  # type: ignore[arg-type]
        else:
            if not isinstance(data, (tuple, list)) or len(data) != 2:
                raise TypeError(
                    "data: expected (inputs, targets) or a Dataset of such pairs, not "
                    f"{type(data).__name__}"
                )
            self._parts = (_tree(data[0]), _tree(data[1]))
            lengths = {len(part) for tree in self._parts for part in _flat(tree)}
            if len(lengths) != 1:
                raise ValueError(f"data: inputs and targets differ in length: {sorted(lengths)}")
            self.n = lengths.pop()
        if self.n == 0:
            raise ValueError("data: there are no samples")
        self._weights = torch.ones(self.n, dtype=torch.float64, device=device)

    def size(self, idx: Any) -> int:
        """How many samples `idx` names."""
        return self.n if isinstance(idx, slice) else len(idx)

    def weigh(self, weigh: Callable[[Any], Tensor]) -> None:
        """Divide by the mean of the weights that the targets have in the loss's own mean.

        The losses carry the weights already; torch divides their sum by that of the weights.
        """
        size = 65_536
        parts = [weigh(targets) for _, targets, _ in self.chunks(slice(None), size)]
        weights = torch.cat([part.to(torch.float64) for part in parts])
        if not float(weights.sum()) > 0:
            raise ValueError("data: every target is ignored, or has weight zero")
        self._weights = self._weights / weights.mean()

    def chunks(self, idx: Any, size: int) -> Iterator[Chunk]:
        """The samples `idx`, at most `size` at a time, with their weights."""
        for at in range(0, self.size(idx), size):
            whole = isinstance(idx, slice)
            part = slice(at, min(at + size, self.n)) if whole else idx[at : at + size]
            yield (*self.take(part), self._weights[part])

    def take(self, idx: Any) -> tuple[Any, Any]:
        """The samples `idx`, on the device."""
        if self._dataset is not None:
            rows = range(*idx.indices(self.n)) if isinstance(idx, slice) else idx.tolist()
            inputs, targets = default_collate([self._dataset[i] for i in rows])
            return self._move(_tree(inputs)), self._move(_tree(targets))
        inputs, targets = (self._move(_pick(tree, idx)) for tree in self._parts)
        return inputs, targets

    def _move(self, tree: Any) -> Any:
        if isinstance(tree, tuple):
            return tuple(self._move(part) for part in tree)
        return tree.to(self._device, non_blocking=True)


def _tree(data: Any) -> Any:
    if isinstance(data, (tuple, list)):
        return tuple(_tree(part) for part in data)
    if isinstance(data, (Tensor, np.ndarray)):
        return data
    raise TypeError(f"data: expected tensors or numpy arrays, not {type(data).__name__}")


def _flat(tree: Any) -> list[Any]:
    return [leaf for part in tree for leaf in _flat(part)] if isinstance(tree, tuple) else [tree]


def _pick(tree: Any, idx: Any) -> Any:
    if isinstance(tree, tuple):
        return tuple(_pick(part, idx) for part in tree)
    if isinstance(tree, np.ndarray):
        rows = idx if isinstance(idx, slice) else idx.cpu().numpy()
        return torch.from_numpy(np.array(tree[rows]))
    return tree[idx] if isinstance(idx, slice) else tree[idx.to(tree.device)]
