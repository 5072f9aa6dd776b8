"""A sum of several means, each over samples of its own: blocks of squared residuals."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Self

from ksdmin._adapters.curvature import Product
from ksdmin._adapters.flat_problem import FlatProblem, KeptParts, as_penalty, host_indices
from ksdmin._adapters.model_problem import ModelProblem
from ksdmin._adapters.names import Names
from ksdmin._problem.arrays import Array, Space, namespace_of
from ksdmin._problem.counting import Counts
from ksdmin._problem.protocol import Jacobian, Traits
from ksdmin._problem.subsets import WHOLE, Drawn, StratifiedSubsets, Subsets, same_set
from ksdmin._problem.team import Team
from ksdmin._problem.values import changed

# Added to the mean square that a diagonal is divided by, which may be zero; float32 can hold it.
LEAST_SQUARE = 1e-30


@dataclass(frozen=True)
class Term:
    """A block as a problem of its own: the mean of its squared residuals."""

    problem: ModelProblem  # without a penalty
    weight: float  # its factor in the sum
    elements: int  # how many residuals a sample has


class BlockProblem(FlatProblem):
    """The weighted sum of problems over the same variables, each with samples of its own.

    Made by ``from_torch``, ``from_jax`` and ``from_autograd`` with ``residuals=``. The samples of
    all blocks are numbered one after the other: a set of samples is an index into all of them, and
    the term of each block is the mean over its own samples in the set. If a block has other samples
    in every epoch, a set is that of an epoch, as ``subsets`` draws it.

    Attributes
    ----------
    x0 : array
        The initial parameters, as one flat vector.
    subsets : Subsets
        The samples of all blocks; each block is drawn by itself.
    """

    def __init__(self, terms: Sequence[Term], l2: Any, precond: Any) -> None:
        blocks = tuple(term.problem for term in terms)
        self._partition, subsets = _joined(blocks)
        sizes = self._partition.sizes
        nonlinear = any(block.traits.nonlinear for block in blocks)
        noises = [block.traits.noise for block in blocks if block.traits.noise is not None]
        traits = Traits(
            nonlinear=nonlinear,
            noise=max(noises, default=None),
            product_accuracy=min(block.traits.product_accuracy for block in blocks),
            has_projected_gradient=blocks[0].traits.has_projected_gradient,
            has_matrix=all(block.traits.has_matrix for block in blocks),
            matrix_cost=max(block.traits.matrix_cost or 0.0 for block in blocks) or None,
            has_jacobian=nonlinear and all(block.traits.has_jacobian for block in blocks),
            rows_per_sample=_mean(sizes, [block.traits.rows_per_sample for block in blocks]),
            sum_of_squares=True,
            matrix_memory=blocks[0].traits.matrix_memory,
            product_cost=_mean(sizes, [block.traits.product_cost for block in blocks])
            if nonlinear  # the core knows that of a linear model
            else None,
            call_cost=sum(block.traits.call_cost for block in blocks),
            # all samples reach this where each block reaches its own
            least_set=sum(map(min, sizes, [block.traits.least_set for block in blocks])),
            has_finer_arithmetic=True,
        )
        if isinstance(precond, str) and not all(block.traits.has_diagonal for block in blocks):
            precond = None  # a matrix of some terms is not that of the sum
        super().__init__(blocks[0].x0, subsets, traits, precond)
        self._blocks, self._l2 = blocks, l2
        self._weights = tuple(term.weight for term in terms)
        self._elements = tuple(term.elements for term in terms)

    def _described(self) -> list[str]:
        size, *rest = self._blocks[0]._described()
        sizes = ", ".join(f"{n:,}" for n in self._partition.sizes)
        return [size, f"blocks of samples: {sizes}", *rest[1:]]

    def in_finer_arithmetic(self) -> Any:
        """The problem with less rounding, in the end float64; None if there is none."""
        finer = [block.in_finer_arithmetic() for block in self._blocks]
        if None in finer:
            return self.in_double()
        noise = max(one.traits.noise or 0.0 for one in finer if one is not None)
        traits = replace(self.traits, noise=noise)
        return changed(self, _blocks=tuple(finer), traits=traits)

    def counting(self, counts: Counts) -> Self:
        """A copy for one run; the counts of the blocks are part of those of the sum."""
        blocks = tuple(block.counting(Counts()) for block in self._blocks)
        return changed(self, _counts=counts, _blocks=blocks)

    def load(self, x: Any) -> None:
        """Write a flat vector (a tensor, or a numpy array) back into the torch module.

        It becomes ``problem.x0``, too: ``minimize(problem)`` then starts there.
        """
        self._of_first("load", "unflatten(x) gives the parameters of a problem without a module")(x)
        self.x0 = self._blocks[0].x0

    def unflatten(self, x: Any) -> Any:
        """A flat vector (also of numpy) as the parameters that the residuals take."""
        return self._of_first("unflatten", "load(x) writes a vector into the module")(x)

    def _of_first(self, verb: str, instead: str) -> Callable[[Any], Any]:
        found: Callable[[Any], Any] | None = getattr(self._blocks[0], verb, None)
        if found is None:
            raise TypeError(f"this problem has no {verb}: {instead}")
        return found

    def _names(self) -> Names:
        return self._blocks[0]._names()

    def _value(self, x: Array, idx: Any) -> Any:
        self._counts.nfev += 1
        own = [block._value(x, part) for block, part in self._parts(idx)]
        values, _ = self.team.joint(own, lambda values: [], self._counts)
        return self._sum_with_penalty(values, x)

    def spread_over(self, team: Team) -> Self:
        blocks = tuple(block.told_by(team) for block in self._blocks)
        return changed(self, _team=team, _blocks=blocks)

    def _share(self, x: Array, idx: Any) -> tuple[list[Any], Array, Callable[[Any], Any]]:
        terms = [block._evaluate(x, part, False) for block, part in self._parts(idx)]
        values, gradients = zip(*terms, strict=True)
        along = self._sum(gradients)
        along = self._plus_l2_times(along, x) if self.team.is_first else along
        return list(values), along, lambda values: self._sum_with_penalty(values, x)

    def curvature(self, x: Array, idx: Any = WHOLE) -> Product:
        products = [block.curvature(x, part) for block, part in self._parts(idx)]

        def multiply(v: Array) -> Array:
            with self._once("nfev"):  # forward passes that the products repeat
                own = self._sum([product(v) for product in products])
            total = self.team.joint_product(own, self._counts, self._count_forward_pass)
            return self._plus_l2_times(total, v)

        return self._counted(multiply)

    def matrix(self, x: Array, idx: Any = WHOLE) -> Array:
        """The curvature matrix itself, if the traits say that there is one."""
        with self._once("nhev"):
            own = self._sum([block.matrix(x, part) for block, part in self._parts(idx)])
        (total,) = self.team.joint_parts([own], self._counts)
        return total if self._l2 is None else total + self._space.diagonal_matrix(self._l2)

    def jacobian(self, x: Array, idx: Any = WHOLE) -> Jacobian:
        """The curvature as rows, block by block, if the traits say that there are any."""
        with self._once("nhev"):
            parts = [block.jacobian(x, part) for block, part in self._parts(idx)]
        xp = namespace_of(parts[0].rows)

        def joined(each: Sequence[Array]) -> Array:
            return xp.concat([w**0.5 * one for w, one in zip(self._weights, each, strict=True)])

        def at(y: Array) -> tuple[Any, Array]:
            self._counts.nfev += 1
            own, residuals = zip(*(part.at(y) for part in parts if part.at), strict=True)
            values, (whole,) = self.team.joint(own, lambda _: [joined(residuals)], self._counts)
            return self._sum_with_penalty(values, y), whole

        own = joined([part.rows for part in parts]), joined([part.residuals for part in parts])
        rows, residuals = self.team.joint_parts(own, self._counts)
        return Jacobian(rows, residuals, as_penalty(self._l2), at)

    @contextmanager
    def _once(self, name: str) -> Iterator[None]:
        """Count for the sum what the block with the most of them counts within it."""
        before = [getattr(block._counts, name) for block in self._blocks]
        yield
        counted = zip(self._blocks, before, strict=True)
        most = max(getattr(block._counts, name) - count for block, count in counted)
        self._counts.add(**{name: most})

    def _evaluate(self, x: Array, idx: Any, diagonal: bool) -> tuple[Any, ...]:
        self._counts.add(nfev=1, njev=1)
        fisher = diagonal and isinstance(self._precond, str)
        terms = [block._evaluate(x, part, fisher) for block, part in self._parts(idx)]
        own, gradients, *diagonals = zip(*terms, strict=True)

        def vectors(values: Sequence[Any]) -> list[Array]:
            summed = (self._summed_diagonals(values, each) for each in diagonals)
            return [self._sum(gradients), *summed]

        values, (g, *D) = self.team.joint(own, vectors, self._counts)
        value, g = self._sum_with_penalty(values, x), self._plus_l2_times(g, x)
        if not diagonal:
            return value, g
        if not fisher:
            return value, g, self._user_diagonal(x, idx)
        self._count_diagonals()
        return value, g, D[0] if self._l2 is None else D[0] + self._l2

    def _summed_diagonals(self, values: Sequence[Any], diagonals: Sequence[Array]) -> Array:
        """The diagonal of the empirical Fisher matrix, in the scale of the Gauss-Newton matrix.

        A squared gradient of r^2 has the factor r^2, so that a block with small residuals would
        hardly count. So each counts as a Gaussian likelihood whose variance is its mean square.
        """
        scaled = [
            elements / 2 * squares / (value + LEAST_SQUARE)
            for elements, squares, value in zip(self._elements, diagonals, values, strict=True)
        ]
        return self._sum(scaled)

    def _plus_l2_times(self, total: Array, v: Array) -> Array:
        return total if self._l2 is None else total + self._l2 * v

    def _count_diagonals(self) -> None:
        """The passes over a block for its diagonal, as passes over the samples of all blocks."""
        for block, size in zip(self._blocks, self._partition.sizes, strict=True):
            self._counts.passes += block._counts.passes * size / self._partition.n
            block._counts.passes = 0.0

    def _parts(self, idx: Any) -> list[tuple[ModelProblem, Any]]:
        """Each block with its part of a set."""
        return list(zip(self._blocks, self._partition.split(idx, self._space), strict=True))

    def _sum(self, terms: Sequence[Any]) -> Any:
        """The weighted sum over the blocks; nothing is copied from a device."""
        return reduce(operator.add, map(operator.mul, self._weights, terms))

    def _sum_with_penalty(self, values: Sequence[Any], x: Array) -> Any:
        total = self._sum(values)
        return total if self._l2 is None else total + self._space.xp.sum(self._l2 * x * x) / 2


class Partition:
    """Blocks of these sizes, one after the other; splits sets of samples into their parts."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes, self.n = tuple(sizes), sum(sizes)
        self._kept = KeptParts()

    def split(self, idx: Any, space: Space) -> list[Any]:
        """The part of a set that belongs to each block, as an index of its own samples."""
        if isinstance(idx, slice):
            rows = range(*idx.indices(self.n))
            return [WHOLE] * len(self.sizes) if len(rows) == self.n else self._split(list(rows))
        if not getattr(idx, "is_cuda", False):
            return self._split(idx)
        split: list[Any] = self._kept.of(
            idx, lambda host: [space.indices(part) for part in self._split(host)]
        )
        return split

    def _split(self, idx: Any) -> list[Any]:
        rows, parts, start = host_indices(idx, self.n), [], 0
        for number, size in enumerate(self.sizes):
            part = rows[(rows >= start) & (rows < start + size)] - start
            if not part.size:
                raise ValueError(
                    f"a set of samples has none of block {number} of the residuals (samples "
                    f"{start} to {start + size - 1}): it must have at least one of each block, "
                    "whose term is the mean over its own samples"
                )
            parts.append(part)
            start += size
        return parts


def _mean(sizes: Sequence[int], costs: Sequence[Any]) -> Any:
    """The mean per sample over blocks of these sizes; None if a block's is not known."""
    return None if None in costs else sum(map(operator.mul, sizes, costs)) / sum(sizes)


def _joined(blocks: Sequence[FlatProblem]) -> tuple[Partition | EpochPartition, Subsets]:
    """The partition of the samples into blocks, and the default sets of a run."""
    own = [block.subsets for block in blocks if block.subsets is not None]
    sizes = [subsets.n for subsets in own if subsets.n is not None]
    if len(sizes) == len(blocks):
        return Partition(sizes), StratifiedSubsets(sizes)
    epochs = EpochPartition(own)
    return epochs, epochs.subsets


# Blocks whose samples are drawn again in every epoch: a set has one part for each block


class JoinedSet(Drawn):
    """A set of every block, together."""

    def __init__(
        self,
        parts: list[Any],  # of each block; `WHOLE` of one whose samples are always the same
        size: int,
        drawn_in: int,  # the epoch, by which a saved run draws the set again
    ) -> None:
        self.parts, self.drawn_in = parts, drawn_in
        self.shape = (size,)  # as of a vector of indices

    def is_again(self, other: Any) -> bool:
        """Whether another set has the same samples in every block."""
        return isinstance(other, JoinedSet) and all(map(same_set, self.parts, other.parts))


class EpochPartition:
    """Like `Partition`, if some blocks have other samples in every epoch."""

    def __init__(self, of_blocks: Sequence[Subsets]) -> None:
        self._of_blocks = of_blocks
        self.sizes = tuple(map(_size, of_blocks, self._drawn(0)))
        self.n = sum(self.sizes)
        # All samples of the epoch, for A, B and C
        self.subsets = Subsets(self._draw)

    def _draw(self, epoch: int, rng: Any) -> tuple[JoinedSet, ...]:
        parts = self._drawn(epoch)
        return (JoinedSet(parts, sum(map(_size, self._of_blocks, parts)), epoch),) * 3

    def split(self, idx: Any, space: Space) -> list[Any]:
        """The part of a set that belongs to each block."""
        if isinstance(idx, JoinedSet):
            return idx.parts
        if isinstance(idx, slice) and idx == WHOLE:
            return [WHOLE] * len(self.sizes)
        raise TypeError(
            f"a set of samples is a {type(idx).__name__}: where a block of residuals has a "
            "function of the epoch, expected what problem.subsets draws, or slice(None) for epoch 0"
        )

    def _drawn(self, epoch: int) -> list[Any]:
        return [
            WHOLE if subsets.n is not None else subsets.draw(epoch, None, None).A  # type: ignore[arg-type]
            for subsets in self._of_blocks
        ]


def _size(subsets: Subsets, part: Any) -> int:
    size = subsets.size_of(part)
    assert size is not None
    return size
