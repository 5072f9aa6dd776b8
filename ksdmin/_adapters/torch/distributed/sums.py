"""The contribution of one of several processes to the sums over a set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from ksdmin._adapters.flat_problem import KeptParts, host_indices, picked_rows, seed_for_set
from ksdmin._adapters.model_problem import SumsOverSamples
from ksdmin._adapters.torch.data.samples import Samples
from ksdmin._adapters.torch.distributed.link import Link
from ksdmin._adapters.torch.kernels import Product
from ksdmin._adapters.torch.matrices import JacobianRows, MatrixKernel
from ksdmin._adapters.torch.sums import SampleSums
from ksdmin._problem.subsets import WHOLE
from ksdmin._problem.team import Team
from ksdmin._problem.values import changed

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Part:
    """A set of samples, and those of it that are here."""

    idx: Any  # the set, as indices of all samples, on the host
    size: int  # how many samples it has in all processes
    # Those that are here, as indices of this process's samples; None where there are none.
    here: Any
    places: Any  # where these stand in the set


class Shards:
    """The samples of all processes."""

    def __init__(
        self,
        samples: Samples,  # those that are here
        sizes: Sequence[int],  # how many each process has; none is fine
        rank: int,  # which process this is
    ) -> None:
        self.n, self._samples = sum(sizes), samples
        self._start = sum(sizes[:rank])
        self._stop = self._start + sizes[rank]
        places = slice(self._start, self._stop)
        self._whole = Part(WHOLE, self.n, WHOLE if sizes[rank] else None, places)
        self._kept = KeptParts()

    @property
    def is_weighted(self) -> bool:
        return self._samples.is_weighted

    def forget(self) -> None:
        self._samples.forget()

    def size(self, part: Part) -> int:
        return part.size

    def indices(self, idx: Any) -> Part:
        """A set, and its part in this process."""
        if isinstance(idx, slice):
            rows = range(*idx.indices(self.n))
            return self._whole if len(rows) == self.n else self._part(list(rows))
        part: Part = self._kept.of(idx, self._part) if isinstance(idx, Tensor) else self._part(idx)
        return part

    def _part(self, idx: Any) -> Part:
        rows = host_indices(idx, self.n)
        places = np.flatnonzero((rows >= self._start) & (rows < self._stop))
        here = torch.from_numpy(rows[places] - self._start)
        local = self._samples.indices(here) if len(places) else None
        return Part(torch.from_numpy(rows), len(rows), local, torch.from_numpy(places))

    def picked(self, part: Part, count: int, seed: int) -> Part:
        if part.size <= count:
            return part
        rows = picked_rows(part.size, count, seed_for_set(seed, part.idx))
        return self._part(rows if isinstance(part.idx, slice) else part.idx.numpy()[rows])


VECTORS = {"value": 0, "gradient": 1, "diagonal": 2}  # that a kernel returns beside the total


class Shares(SumsOverSamples):
    """What this process adds to the sums over a set of the samples of all.

    Nothing is sent here: the problem does that. If this process has failed, or has no sample of the
    set, it contributes zeros; the link reports a failure with the next message.
    """

    def __init__(
        self,
        local: SampleSums,  # over the samples that are here
        samples: Shards,  # the samples of all processes
        link: Link,
        seed: int,  # of the samples that the diagonal is estimated from
        max_diagonal_samples: int,  # how many these are at most
    ) -> None:
        self.samples, self._local, self._link, self.seed = samples, local, link, seed
        self.max_diagonal_samples = max_diagonal_samples

    def told_by(self, team: Team) -> Self:
        return changed(self, _link=team)

    @property
    def has_squares(self) -> bool:  # type: ignore[override]
        return self._local.has_squares

    def total(self, kind: str, x: Tensor, part: Part, precision: str) -> list[Tensor]:
        def nothing() -> list[Tensor]:
            vectors = [torch.zeros_like(x) for _ in range(VECTORS[kind])]
            return [x.new_zeros((), dtype=torch.float64), *vectors]

        return self._added(part, lambda: self._local.total(kind, x, part.here, precision), nothing)

    def _added(self, part: Part, here: Callable[[], T], nothing: Callable[[], T]) -> T:
        """What is computed here; `nothing`, if the set has no samples here, or a process fails."""
        return nothing() if part.here is None else self._link.attempt(here, nothing)

    def squares(self, x: Tensor, part: Part, precision: str) -> Tensor:
        squares: Tensor = super().squares(x, part, precision).clone()
        return squares

    def factors(self, x: Tensor, part: Part, precision: str, entries: int) -> Tensor:
        """The sum of the Kronecker factors over a set, which have so many entries."""
        return self._added(
            part,
            lambda: self._local.factors(x, part.here, precision, entries).clone(),
            lambda: x.new_zeros(entries),
        )

    def matrix(self, kernel: MatrixKernel, x: Tensor, part: Part, precision: str) -> Tensor:
        return self._added(
            part,
            lambda: self._local.matrix(kernel, x, part.here, precision).clone(),
            lambda: x.new_zeros((x.numel(), x.numel())),
        )

    def jacobian(
        self, kernel: JacobianRows, x: Tensor, part: Part, precision: str
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The rows of a set in the order of one process, slopes and roots: zeros elsewhere."""
        n, k = x.numel(), kernel.elements
        R, slopes, root = (x.new_zeros((part.size, k, *more)) for more in ((n,), (), ()))

        def fill() -> None:
            found = self._local.jacobian(kernel, x, part.here, precision)
            for whole, own in zip((R, slopes, root), found, strict=True):
                whole[part.places] = own.reshape(-1, *whole.shape[1:])

        self._added(part, fill, lambda: None)
        return R.reshape(-1, n), slopes.reshape(-1), root.reshape(-1)

    def slopes(
        self, kernel: JacobianRows, x: Tensor, part: Part, precision: str
    ) -> tuple[Tensor, Tensor]:
        """The sum of the losses here, and their slopes in the same order, zeros elsewhere."""
        whole = x.new_zeros((part.size, kernel.elements))
        nothing = x.new_zeros((), dtype=torch.float64)

        def fill() -> Tensor:
            total, slopes = self._local.slopes(kernel, x, part.here, precision)
            whole[part.places] = slopes.reshape(-1, kernel.elements)
            return total

        return self._added(part, fill, lambda: nothing), whole.reshape(-1)

    def product(
        self, x: Tensor, part: Part, precision: str, on_recompute: Callable[[], None]
    ) -> Product:
        """If a forward pass has to be repeated, the link reports it, not `on_recompute`."""
        again = self._link.note_forward_pass

        def here() -> Product:
            return self._local.product(x, part.here, precision, again)

        own = self._added(part, here, lambda: torch.zeros_like)
        return lambda v: self._added(part, lambda: own(v), lambda: torch.zeros_like(v))
