"""Samples in chunks of one shape; the last one is padded if necessary."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from ksdmin._adapters.arguments import as_weights, from_frame, refuse_sparse, sample_count
from ksdmin._adapters.flat_problem import host_indices, picked_rows, seed_for_set
from ksdmin._adapters.functional.library import Library
from ksdmin._adapters.trees import tree_leaves, tree_map
from ksdmin._problem.arrays import Array


class Samples:
    """Inputs and targets, in chunks, on the device where the library computes."""

    def __init__(
        self,
        data: Any,  # (inputs, targets): arrays, or nested tuples, lists and dictionaries of them
        library: Library,
        # The parameters: data of at most `budget` bytes are put on their device, others are brought
        # there chunk by chunk.
        x: Array,
        budget: float,  # how many bytes
        sample_weight: Any = None,  # a weight for each sample
    ) -> None:
        if not isinstance(data, (tuple, list)) or len(data) != 2:
            raise TypeError(f"data: expected (inputs, targets), not {type(data).__name__}")
        data = tree_map(from_frame, data)
        parts: list[Array] = tree_leaves(data)
        for part in parts:
            _check(part)
        self.n = sample_count(parts)
        self.is_weighted = sample_weight is not None
        weights = as_weights(sample_weight, self.n) if self.is_weighted else np.ones(self.n)
        weights = (weights / weights.mean()).astype(x.dtype)
        fits = sum(part.nbytes for part in parts) <= budget
        if fits:
            data = tree_map(lambda part: library.to_device(part, x), data)
        if fits or not any(isinstance(part, np.ndarray) for part in parts):
            weights = library.to_device(weights, tree_leaves(data)[0])
        self._data, self._weights, self._library = tuple(data), weights, library

    def indices(self, idx: Any) -> Any:
        """A set for the methods below: a slice, or a vector of indices on the host."""
        if not isinstance(idx, slice):
            return host_indices(idx, self.n)
        rows = range(*idx.indices(self.n))
        # a range that counts down to zero is not a slice; an empty one is an error
        return idx if rows and rows.step > 0 else host_indices(list(rows), self.n)

    def size(self, idx: Any) -> int:
        """How many samples `idx` names."""
        return len(range(*idx.indices(self.n))) if isinstance(idx, slice) else len(idx)

    def picked(self, idx: Any, count: int, seed: int) -> Any:
        """At most `count` samples of a set, always the same ones for the same seed and set."""
        size = self.size(idx)
        if size <= count:
            return idx
        rows = picked_rows(size, count, seed_for_set(seed, idx))
        return np.arange(self.n)[idx][rows] if isinstance(idx, slice) else np.asarray(idx)[rows]

    def chunks(self, idx: Any, rows: int | None) -> Iterator[Any]:
        """The samples `idx`, `rows` at a time; the last sample is repeated to fill its chunk.

        With `rows` None, all samples are one chunk, without a copy.
        """
        chunk = partial(self._library.chunk, self._data, self._weights)
        if rows is None:
            yield chunk(None, self.n)
            return
        size = self.size(idx)
        # on the host: jax would compile each slice of an array on a device
        idx = range(*idx.indices(self.n)) if isinstance(idx, slice) else np.asarray(idx)
        for at in range(0, size, rows):
            yield chunk(_padded(idx[at : at + rows], rows), min(rows, size - at))


def _check(part: Any) -> None:
    """Raise for anything but an array with one row per sample."""
    refuse_sparse(part)
    if not getattr(part, "shape", ()):
        kind = type(part).__name__
        if isinstance(part, (float, int)):
            kind += ". Convert a list of numbers: np.array(X)"
        raise TypeError(f"data: expected arrays with one row per sample, not {kind}")


def one_ahead(results: Iterator[Any]) -> Iterator[Any]:
    """The results, each after the next was started, so that computing overlaps with waiting."""
    current = next(results)
    for following in results:
        yield current
        current = following
    yield current


def _padded(part: Any, rows: int) -> Any:
    """`part` of the indices, the last one repeated up to `rows` indices."""
    if len(part) == rows:
        return part
    indices = np.asarray(part)
    return np.concatenate([indices, np.repeat(indices[-1:], rows - len(indices))])
