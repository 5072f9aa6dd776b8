"""Sets that are drawn from each block of samples by itself, for sums of several means."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ksdmin._problem.subsets import Sets, Sizes, Subsets
from ksdmin._problem.values import changed

Rows = npt.NDArray[np.int64]


class StratifiedSubsets(Subsets):
    """Sets over several blocks of samples, one behind the other; each is drawn by itself.

    The mean over each block enters the objective by itself: so each block gets the same number of
    samples, as far as it has them, and never none. (Shares in proportion to the blocks would
    leave a small one with next to nothing.)

    Parameters
    ----------
    block_sizes : sequence of int
        How many samples each block has.
    gradient, curvature, search : float or int, optional
        The sizes of A, B and C, over all blocks together: as in :class:`Subsets`.
    disjoint : bool, optional
        Whether B and C have no sample in common in the blocks that hold both.
    """

    def __init__(
        self,
        block_sizes: Sequence[int],
        gradient: float | None = None,
        curvature: float | None = None,
        search: float | None = None,
        disjoint: bool = True,
    ) -> None:
        self.block_sizes = tuple(block_sizes)
        super().__init__(sum(self.block_sizes), gradient, curvature, search, disjoint)

    def adopting(self, subsets: Subsets) -> Subsets:
        """Blocks as these, with the sizes that `subsets` asks for; a user's own sets stay."""
        if subsets.n is None or isinstance(subsets, StratifiedSubsets):
            return subsets
        adopted = changed(
            self,
            full=subsets.full,
            disjoint=subsets.disjoint,
            _requested=subsets._requested,
        )
        adopted.sizes(parts=2)  # an impossible request is refused here, not in mid-run
        return adopted

    @property
    def smallest(self) -> int:
        """Every set has a sample of each block."""
        return len(self.block_sizes)

    def _count(self, size: float, name: str) -> int:
        count, least = super()._count(size, name), len(self.block_sizes)
        if count == size and not isinstance(size, float) and count < least:
            raise ValueError(
                f"subsets: {name}={size!r} samples of {least} blocks: a set needs at least one "
                f"sample of each block, {least} in all"
            )
        return max(count, least)

    def draw(self, iteration: int, rng: np.random.Generator, sizes: Sizes | None) -> Sets:
        """The sets of an iteration."""
        assert sizes is not None
        A = self._sample(rng, sizes.A)
        blocks = zip(self.block_sizes, self._shares(sizes.B), self._shares(sizes.C), strict=True)
        of_B, of_C = zip(*(self._pair(rng, n, b, c) for n, b, c in blocks), strict=True)
        return Sets(A, self._joined(of_B, sizes.B), self._joined(of_C, sizes.C))

    def _sample(self, rng: np.random.Generator, size: int) -> object:
        assert self.n is not None
        if size >= self.n:
            return self.full
        parts = [
            _chosen(rng, n, share)
            for n, share in zip(self.block_sizes, self._shares(size), strict=True)
        ]
        return self._joined(parts, size)

    def _pair(self, rng: np.random.Generator, n: int, b: int, c: int) -> tuple[Rows, Rows]:
        """B and C in a block of `n` samples: disjoint, if they are to be and both fit."""
        if self.disjoint and b + c <= n:
            both = rng.choice(n, b + c, replace=False)
            return np.sort(both[:b]), np.sort(both[b:])
        return _chosen(rng, n, b), _chosen(rng, n, c)

    def _joined(self, parts: Sequence[Rows], size: int) -> object:
        """The rows of each block as rows of all; the whole set by its name."""
        assert self.n is not None
        if size >= self.n:
            return self.full
        offsets = np.cumsum([0, *self.block_sizes[:-1]])
        return np.concatenate([part + at for part, at in zip(parts, offsets, strict=True)])

    def _shares(self, size: int) -> list[int]:
        return equal_shares(size, self.block_sizes)


def equal_shares(size: int, block_sizes: Sequence[int]) -> list[int]:
    """`size` samples divided among blocks: the same number each, as far as a block has them.

    What does not go round falls to the largest blocks.
    """
    shares, rest = [0] * len(block_sizes), min(size, sum(block_sizes))
    order = sorted(range(len(shares)), key=block_sizes.__getitem__)
    for place, block in enumerate(order):
        shares[block] = min(block_sizes[block], rest // (len(order) - place))
        rest -= shares[block]
    return shares


def _chosen(rng: np.random.Generator, n: int, size: int) -> Rows:
    return np.arange(n) if size >= n else np.sort(rng.choice(n, size, replace=False))
