"""Vectors that are split over the processes of a group: each keeps a slice of every vector.

Where the vectors of a run do not fit one device, only what is evaluated needs a whole one: the
point (or the vector of a product) is gathered for that, and of the gradient (or the product) each
process gets its slice of the sum. What a run computes from all entries of its vectors are small
sums of what each process finds in its slices.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from ksdmin._adapters.torch.distributed.link import Link
from ksdmin._problem.arrays import Space
from ksdmin._problem.counting import CountingProblem, Counts
from ksdmin._problem.protocol import Product
from ksdmin._problem.team import Watch
from ksdmin._problem.values import changed

# Their names until and since torch 2.13
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Slices:
    """Which entries of a vector each process has: as many as the others, or one more.

    Parameters
    ----------
    n : int
        The length of a vector.
    rank, size : int
        Which process this is, and of how many.

    Attributes
    ----------
    own : slice
        The entries of this process.
    longest : int
        How many the first process has: the length of every piece of a message.
    """

    def __init__(self, n: int, rank: int, size: int) -> None:
        if n < size:
            raise ValueError(f"split: {n} unknowns cannot be split over {size} processes")
        self.n, self.size = n, size
        short, self._longer = divmod(n, size)
        self.longest = short + (self._longer > 0)
        start = rank * short + min(rank, self._longer)
        self.own = slice(start, start + short + (rank < self._longer))

    @property
    def padded(self) -> int:
        """The length of a vector whose slices are all of the same length."""
        return self.size * self.longest

    def pad(self, whole: Tensor) -> Tensor:
        """A whole vector with an empty place behind each shorter slice."""
        if self.padded == self.n:
            return whole.contiguous()
        cut = self._longer * self.longest
        out = whole.new_zeros(self.size, self.longest)
        out[: self._longer] = whole[:cut].reshape(-1, self.longest)
        out[self._longer :, :-1] = whole[cut:].reshape(-1, self.longest - 1)
        return out.reshape(-1)

    def unpad(self, padded: Tensor) -> Tensor:
        """The whole vector again."""
        if self.padded == self.n:
            return padded
        rows = padded.reshape(self.size, self.longest)
        return torch.cat([rows[: self._longer].reshape(-1), rows[self._longer :, :-1].reshape(-1)])


class ScatteringLink(Link):
    """A link whose sums of vectors are right in the entries of this process only.

    The others would be cut off in any case; not to send them halves what travels.
    """

    slices: Slices

    @classmethod
    def of(cls, link: Link, n: int) -> ScatteringLink:
        """A link between the same processes, for vectors of length n."""
        own = object.__new__(cls)
        own.__dict__.update(vars(link), slices=Slices(n, link.rank, link.size), _pending=deque())
        return own

    def gather(self, own: Tensor, counts: Counts) -> Tensor:
        """The whole vector of which each process has its slice."""
        slices = self.slices
        piece = own.new_zeros(slices.longest)
        piece[: own.numel()] = own
        padded = own.new_empty(slices.padded)
        self._call(lambda: all_gather(padded, piece, group=self._group))
        counts.add_message(piece.numel() * piece.element_size())
        return slices.unpad(padded)

    def sum_vectors(self, vectors: Sequence[Tensor], counts: Counts) -> list[Tensor]:
        """The sums of vectors, in the entries of this process; the others are to be ignored."""
        return [self._scattered(vector, counts) for vector in vectors]

    def sum_vector(self, vector: Tensor, counts: Counts, on_again: Callable[[], None]) -> Tensor:
        """The sum of a vector, likewise; its signals are a message of their own."""
        signals = self.sum(vector.new_tensor(self._signals()), counts)
        self._heed_later(signals, on_again)
        return self._scattered(vector, counts)

    def _scattered(self, vector: Tensor, counts: Counts) -> Tensor:
        padded, own = self.slices.pad(vector), self.slices.own
        piece = vector.new_empty(self.slices.longest)
        self._call(lambda: reduce_scatter(piece, padded, group=self._group))
        counts.add_message(padded.numel() * padded.element_size())
        vector[own] = piece[: own.stop - own.start]
        return vector


class SplitSpace(Space):
    """Where the vectors of a run live of which each process has a slice.

    Parameters
    ----------
    x : Tensor
        A whole vector.
    link : ScatteringLink
        Between the processes.

    Attributes
    ----------
    link
        As given.
    n : int
        The length of a whole vector.
    counts : Counts
        Where messages are counted: those of the step that is being made.
    """

    is_split = True

    def __init__(self, x: Tensor, link: ScatteringLink) -> None:
        super().__init__(x[link.slices.own])
        self.n, self.link, self.counts = x.numel(), link, Counts()
        # Small sums are waited for in every step of a recurrence, so there is no computing ahead,
        # and no graph: some backends cannot be captured.
        self.remote = False
        self.vector_bytes = link.slices.longest * self.itemsize  # the same in all processes

    def taken(self, x: Tensor) -> Tensor:
        """The slice of this process, of a vector or of rows of them."""
        return x[..., self.link.slices.own].clone()

    def given(self, x: Tensor) -> Tensor:
        """The whole vector: all processes have to ask for it."""
        return self.link.gather(x, self.counts).clone()

    def saved(self, rows: Any) -> Any:
        """Whole vectors, as many as there are rows, on the host: a file has them whole."""
        if not isinstance(rows, Tensor) or not rows.is_floating_point():
            return rows
        whole = [self.link.gather(row, Counts()).cpu() for row in rows.reshape(-1, self.length)]
        shape = (*rows.shape[:-1], self.n)
        return torch.stack(whole).reshape(shape) if whole else torch.empty(shape, dtype=rows.dtype)

    def unit(self, i: int = 0) -> Tensor:
        """The unit vector e_(i+1)."""
        e = torch.zeros(self.n, dtype=self.dtype, device=self.device)
        e[i] = 1.0
        return self.taken(e)

    def inner(self, U: Tensor, w: Tensor) -> Tensor:
        """The inner products of a vector, or of rows, with a vector: sums over all processes."""
        return self.link.sum(U @ w, self.counts)

    def gram(self, U: Tensor, W: Tensor) -> Tensor:
        """The inner products of rows with rows, likewise."""
        return self.link.sum(super().gram(U, W).contiguous(), self.counts)

    def max_abs(self, u: Tensor) -> float:
        """The largest magnitude; NaN if any entry is."""
        return self.largest(u.abs())

    def largest(self, u: Tensor) -> float:
        """The largest entry; NaN if any is, which not every backend's maximum says."""
        mine = float(u.max())
        unknown = math.isnan(mine)
        numbers = [float(unknown), -math.inf if unknown else mine]
        unknown_somewhere, largest = self.link.largest(numbers, self.counts)
        return math.nan if unknown_somewhere else largest

    def mean(self, u: Tensor) -> Tensor:
        """The mean of the entries."""
        return self.link.sum(u.sum(), self.counts) / self.n


class SplitProblem(CountingProblem):
    """A problem whose verbs take and return slices.

    Parameters
    ----------
    problem : CountingProblem
        Of whole vectors, whose sums are those of a :class:`ScatteringLink`.
    space : SplitSpace
        Where the run's vectors live.
    """

    def __init__(self, problem: CountingProblem, space: SplitSpace) -> None:
        self._problem, self._space, self._counts = problem, space, Counts()
        self.traits = replace(  # there are no slopes without a gradient, and no matrix
            problem.traits,
            has_projected_gradient=False,
            gradient_travels=False,
            has_matrix=False,
            matrix_cost=None,
            has_jacobian=False,
        )

    def counting(self, counts: Counts) -> Self:
        """A copy that counts in `counts`, as do the sums of the space from now on."""
        self._space.counts = counts
        return changed(self, _problem=self._problem.counting(counts), _counts=counts)

    def in_step_with(self, watch: Watch) -> Self:
        """A copy for a run that ends when all processes know that `watch` wants it to."""
        return changed(self, _problem=self._problem.in_step_with(watch))

    def in_finer_arithmetic(self) -> SplitProblem | None:
        """The same with less rounding; None where there is none."""
        finer = self._problem.in_finer_arithmetic()
        return None if finer is None else SplitProblem(finer, self._space)

    def value(self, x: Tensor, idx: Any) -> float:
        """The mean loss."""
        return self._problem.value(self._whole(x), idx)

    def value_and_gradient(self, x: Tensor, idx: Any, *, diagonal: bool = False) -> Any:
        """(value, gradient), or with the diagonal of the curvature."""
        x = self._whole(x)
        value, *vectors = self._problem.value_and_gradient(x, idx, diagonal=diagonal)
        return value, *map(self._space.taken, vectors)

    def curvature(self, x: Tensor, idx: Any) -> Product:
        """A product v -> Hv."""
        product = self._problem.curvature(self._whole(x), idx)
        return lambda v: self._space.taken(product(self._whole(v)))

    def _whole(self, x: Tensor) -> Tensor:
        return self._space.link.gather(x, self._counts)


class Splittable(CountingProblem):
    """A problem of whole vectors that a run may split over its processes.

    Attributes
    ----------
    team : Link
        The processes.
    split : bool
        Whether a run splits them.
    """

    team: Link
    split: bool

    def linked_by(self, link: Link) -> Self:
        """A copy whose sums are made by another link."""
        raise NotImplementedError

    def in_step_with(self, watch: Watch) -> Self:
        """A copy for a run that ends when all processes know that `watch` wants it to."""
        return self.linked_by(self.team.for_run(watch))

    def space_of_run(self, x0: Tensor) -> Space | None:
        """Where the vectors of a run from `x0` live; None: where `x0` does."""
        if not self.split:
            return None
        return SplitSpace(x0, ScatteringLink.of(self.team, x0.numel()))

    def in_space(self, space: Space) -> CountingProblem:
        """The problem as a run takes it."""
        if not isinstance(space, SplitSpace):
            return self
        return SplitProblem(self.linked_by(space.link), space)
