"""Chunks of the sets that were used last, where all samples do not fit into memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from ksdmin._adapters.torch.kernels import Chunk


class KeptSets:
    """Keeps the chunks of sets that fit into a budget; those used least recently go first.

    A run evaluates the sets of its search and its products many times each.

    Parameters
    ----------
    budget : float
        Bytes.
    """

    def __init__(self, budget: float) -> None:
        self._budget = budget
        self._sets: OrderedDict[Hashable, list[Chunk]] = OrderedDict()

    def chunks(
        self, key: Hashable, count: int, make: Callable[[], Iterator[Chunk]]
    ) -> Iterator[Chunk]:
        """The `count` chunks of the set `key`: those that are kept, or what `make` makes."""
        if key in self._sets:
            self._sets.move_to_end(key)
            return iter(self._sets[key])
        return self._kept(key, count, make())

    def emptied(self) -> KeptSets:
        """One of the same budget that keeps nothing yet."""
        return KeptSets(self._budget)

    def clear(self) -> None:
        """Drop all."""
        self._sets.clear()

    def _kept(self, key: Hashable, count: int, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        kept: list[Chunk] = []
        for i, chunk in enumerate(chunks):
            if i == 0 and count * _bytes(chunk) > self._budget:
                yield chunk
                yield from chunks
                return
            kept.append(chunk)
            yield chunk
        self._sets[key] = kept
        while sum(map(_bytes, self._sets.values())) > self._budget and len(self._sets) > 1:
            self._sets.popitem(last=False)

    def __getstate__(self) -> dict[str, Any]:
        # Copies of data that the problem holds anyway
        return {"_budget": self._budget, "_sets": OrderedDict()}


def _bytes(tree: Any) -> int:
    leaves: list[Tensor] = tree_leaves(tree)
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves)
