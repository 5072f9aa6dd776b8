"""Blocks of residuals whose samples are drawn anew: a set has one part for each block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ksdmin._problem.arrays import Space
from ksdmin._problem.subsets import WHOLE, Drawn, Subsets


class JoinedSet(Drawn):
    """A set of every block, together.

    Attributes
    ----------
    parts : list
        The set of each block; `WHOLE` of one whose samples are always the same.
    shape : tuple
        (number of samples,), as of a vector of indices.
    drawn_in : int
        The epoch, by which a saved run draws the set again.
    """

    def __init__(self, parts: Sequence[Any], size: int, drawn_in: int) -> None:
        self.parts, self.shape, self.drawn_in = list(parts), (size,), drawn_in

    def is_again(self, other: Any) -> bool:
        """Whether another set has the same samples of every block."""
        return isinstance(other, JoinedSet) and all(map(_is_again, self.parts, other.parts))


def _is_again(part: Any, other: Any) -> bool:
    return part is other or (part is not WHOLE and part.is_again(other))


class EpochPartition:
    """What `Partition` is for fixed samples, where some blocks have other ones in every epoch.

    Parameters
    ----------
    subsets : sequence of Subsets
        Those of the blocks: without a number `n` where a block has other samples in every epoch.
    """

    def __init__(self, subsets: Sequence[Subsets]) -> None:
        self._subsets = list(subsets)
        first = self._drawn(0)
        self.sizes = tuple(self._size(*each) for each in zip(subsets, first, strict=True))
        self.n = sum(self.sizes)

    @property
    def subsets(self) -> Subsets:
        """The sets that a run takes: all samples of the epoch, for the gradient and the rest."""
        return Subsets(self.draw)

    def draw(self, epoch: int, rng: Any) -> tuple[JoinedSet, ...]:
        """The sets of an epoch."""
        parts = self._drawn(epoch)
        size = sum(self._size(*each) for each in zip(self._subsets, parts, strict=True))
        return (JoinedSet(parts, size, epoch),) * 3

    def split(self, idx: Any, space: Space) -> list[Any]:
        """The part of a set that each block has."""
        if isinstance(idx, JoinedSet):
            return idx.parts
        if isinstance(idx, slice) and idx == WHOLE:
            return [WHOLE] * len(self._subsets)
        raise TypeError(
            f"a set of samples is a {type(idx).__name__}: where a block of residuals has a "
            "function of the epoch, expected what problem.subsets draws, or slice(None) for epoch 0"
        )

    def _drawn(self, epoch: int) -> list[Any]:
        return [
            WHOLE if subsets.n is not None else subsets.draw(epoch, None, None).A  # type: ignore[arg-type]
            for subsets in self._subsets
        ]

    def _size(self, subsets: Subsets, part: Any) -> int:
        size = subsets.size_of(part)
        assert size is not None
        return size
