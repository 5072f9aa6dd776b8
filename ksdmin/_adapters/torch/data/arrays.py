"""Samples in tensors and numpy arrays, memory-mapped ones among them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ksdmin._adapters.torch.data.trees import (
    as_tensor,
    byte_count,
    cast,
    sample_count,
    take_rows,
)
from ksdmin._adapters.trees import tree_leaves, tree_map

# Targets that are read at once, where their weights are summed before the run: large enough to be
# fast, and small in memory even where a target is an image.
TARGETS_PER_READ = 4096


class Arrays:
    """Inputs and targets in arrays, one row per sample."""

    one_shape = True

    def __init__(self, pair: tuple[Any, Any]) -> None:
        self.pair, self.n = pair, sample_count(pair)

    def batches(self, parts: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """The inputs and targets of each part (a slice, or a tensor of indices)."""
        inputs, targets = self.pair
        return ((take_rows(inputs, part), take_rows(targets, part)) for part in parts)

    def targets(self) -> Iterator[Any]:
        """The targets of all samples, some at a time."""
        size = TARGETS_PER_READ
        return (take_rows(self.pair[1], slice(at, at + size)) for at in range(0, self.n, size))

    def is_far_from(self, device: torch.device) -> bool:
        """Whether any of the arrays has to be brought to the device: from the host, or a disk."""
        return any(_is_far(leaf, device) for leaf in tree_leaves(self.pair))

    def far_bytes(self, device: torch.device, dtype: torch.dtype) -> int:
        """How many bytes these take there, floating-point numbers in `dtype`."""
        leaves = tree_leaves(self.pair)
        return sum(byte_count(leaf, dtype) for leaf in leaves if _is_far(leaf, device))

    def brought_to(self, device: torch.device, dtype: torch.dtype) -> Arrays:
        """The same, with these on the device; the others stay as they are."""

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
