"""All samples, of which each process has some: one behind the other, in the order of the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ksdmin._adapters.flat_problem import host_indices
from ksdmin._adapters.seeds import picked_rows, seed_for_set
from ksdmin._adapters.torch.data.samples import Samples
from ksdmin._problem.subsets import WHOLE

# Sets whose parts are kept: A, B and C of an iteration, and one more. To split one that is on a
# device waits for it.
KEPT_SETS = 4


@dataclass(frozen=True, eq=False)
class Part:
    """A set of samples, and those of it that are here.

    Attributes
    ----------
    idx : slice or Tensor
        The set, as indices of all samples, on the host.
    size : int
        How many samples it has in all processes.
    here : slice, Tensor or None
        Those that are here, as indices of this process's samples; None where there are none.
    places : slice or Tensor
        Where these stand in the set.
    """

    idx: Any
    size: int
    here: Any
    places: Any


class Shards:
    """The samples of all processes.

    Parameters
    ----------
    samples : Samples
        Those that are here.
    sizes : sequence of int
        How many each process has; none is fine.
    rank : int
        Which process this is.

    Attributes
    ----------
    n : int
        How many there are in all.
    """

    def __init__(self, samples: Samples, sizes: Sequence[int], rank: int) -> None:
        self.n, self._samples = sum(sizes), samples
        self._start = sum(sizes[:rank])
        self._stop = self._start + sizes[rank]
        places = slice(self._start, self._stop)
        self._whole = Part(WHOLE, self.n, WHOLE if sizes[rank] else None, places)
        self._known: list[tuple[Tensor, int, Part]] = []  # a set, its version, its part

    @property
    def is_weighted(self) -> bool:
        """Whether samples of this process have weights, or ignored labels."""
        return self._samples.is_weighted

    def forget(self) -> None:
        """Drop the sets that are kept for a run: the data may have changed since."""
        self._samples.forget()

    def size(self, part: Part) -> int:
        """How many samples a set has in all processes."""
        return part.size

    def indices(self, idx: Any) -> Part:
        """A set, and which of it is here."""
        if isinstance(idx, slice):
            rows = range(*idx.indices(self.n))
            return self._whole if len(rows) == self.n else self._part(list(rows))
        if not isinstance(idx, Tensor):
            return self._part(idx)
        for known, version, part in self._known:
            if known is idx and version == idx._version:
                return part
        part = self._part(idx.cpu())
        self._known = [(idx, idx._version, part), *self._known[: KEPT_SETS - 1]]
        return part

    def _part(self, idx: Any) -> Part:
        rows = host_indices(idx, self.n)
        places = np.flatnonzero((rows >= self._start) & (rows < self._stop))
        here = torch.from_numpy(rows[places] - self._start)
        local = self._samples.indices(here) if len(places) else None
        return Part(torch.from_numpy(rows), len(rows), local, torch.from_numpy(places))

    def picked(self, part: Part, count: int, seed: int) -> Part:
        """At most `count` samples of a set: for the same seed and set always the same ones."""
        if part.size <= count:
            return part
        rows = picked_rows(part.size, count, seed_for_set(seed, part.idx))
        return self._part(rows if isinstance(part.idx, slice) else part.idx.numpy()[rows])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": []}
