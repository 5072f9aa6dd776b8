"""Kronecker factors of a curvature: the preconditioner of a model that has layers (K-FAC).

The gradient of a layer's weight matrix M is a sum of outer products a b^T, where b are the layer's
inputs and a the gradients of its outputs. Its block of the Fisher matrix is about
E[a a^T] (x) E[b b^T] (Martens and Grosse, 2015), and the inverse of that needs two small matrices:
P^-1 takes M to A^-1 M B^-1. A parameter without this structure has one number for all its entries.

With a damping, the block is (A + pi r I) (x) (B + r / pi I), where r^2 is the damping and pi^2 the
mean eigenvalue of A divided by that of B ("factored Tikhonov damping").
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from ksdmin._problem.arrays import Array, Space

# This share of the mean curvature is the least damping of factors, and what a diagonal of squared
# gradients is raised by. With less, parameters that few samples affect move far, and nets learn
# samples by heart: where the training error of CURVES' auto-encoder is 0.14, its test error is 0.24
# with 0.1, 0.28 with 0.01 and 0.41 with 0.001; that of MNIST's, at 1.86, is 2.58, 2.63 and 2.65. To
# come there takes 1.3 times as long as with 0.01 (an H200). With 1 it takes longer still, for the
# same error. The validation loss of seven other nets is 0.84 to 1.03 times that with 0.001.
MEAN_SHARE = 0.1
# Vectors for each row of a factor. With less than one, the factors of MNIST's and CURVES'
# auto-encoders miss some directions, along which steps are then too long: the training error is up
# to twice as large after five seconds on an H200. With 20 it is no better.
VECTORS_PER_ROW = 5
FACTOR_SAMPLES = 1000  # at least: the positions of one sample are similar
MORE = 10.0  # times as much, if rounding still makes a factor indefinite
MOST_TRIALS = 8


@dataclass(frozen=True)
class Block:
    """The parameters that share a pair of factors, as a matrix M."""

    start: int  # where the weight begins in the flat vector, which has it row by row
    # The shape of the weight.
    rows: int
    columns: int
    bias: int | None = None  # where the bias begins that is one more column of M, or one more row
    bias_is_row: bool = False  # whether it is a row: of a layer that multiplies by M from the right
    # Whether only the diagonal of the factor of that side is known.
    diagonal_rows: bool = False
    diagonal_columns: bool = False
    structured: bool = True  # False: one number stands for both factors
    # How many vectors a sample adds to its factors: one, or one for each position.
    uses: float = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of M."""
        if self.bias is None:
            return self.rows, self.columns
        return self.rows + self.bias_is_row, self.columns + (not self.bias_is_row)

    @property
    def factor_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of its factors: matrices, or vectors where they are diagonal."""
        if not self.structured:
            return ((),)
        sides = zip(self.shape, (self.diagonal_rows, self.diagonal_columns), strict=True)
        return tuple((side,) if diagonal else (side, side) for side, diagonal in sides)

    def matrix(self, space: Space, v: Array) -> Array:
        """M from a flat vector, or from each row of an array."""
        before, end = tuple(v.shape[:-1]), self.start + self.rows * self.columns
        M = space.xp.reshape(v[..., self.start : end], (*before, self.rows, self.columns))
        if self.bias is None:
            return M
        b = v[..., self.bias : self.bias + (self.columns if self.bias_is_row else self.rows)]
        if self.bias_is_row:
            return space.xp.concat([M, b[..., None, :]], axis=-2)
        return space.xp.concat([M, b[..., :, None]], axis=-1)

    def pieces(self, space: Space, M: Array) -> Iterator[tuple[int, Array]]:
        """The pieces of the flat vector that make M, and where each begins."""
        weight, size = M[..., : self.rows, : self.columns], self.rows * self.columns
        yield self.start, space.xp.reshape(weight, (*M.shape[:-2], size))
        if self.bias is not None:
            yield self.bias, M[..., -1, :] if self.bias_is_row else M[..., :, -1]


def entry_count(blocks: tuple[Block, ...]) -> int:
    """How many entries all factors have."""
    return sum(math.prod(shape) for block in blocks for shape in block.factor_shapes)


def samples_needed(blocks: tuple[Block, ...]) -> int:
    """How many samples the factors are estimated from."""
    vectors = (
        VECTORS_PER_ROW
        * max(shape[0] for shape in block.factor_shapes if len(shape) == 2)
        / block.uses
        for block in blocks
        if any(len(shape) == 2 for shape in block.factor_shapes)
    )
    return max(FACTOR_SAMPLES, math.ceil(max(vectors, default=0.0)))


def solve_cost(blocks: tuple[Block, ...]) -> float:
    """The operations of a multiplication by such a matrix or its inverse."""
    return sum(
        2.0 * math.prod(block.shape) * side
        for block in blocks
        for side, shape in zip(block.shape, block.factor_shapes, strict=False)
        if len(shape) == 2
    )


@dataclass(frozen=True)
class Factors:
    """The factors of blocks that have each parameter once."""

    blocks: tuple[Block, ...]  # the blocks
    entries: Array  # the entries of all factors, one factor after the other: a mean over samples
    penalty: float = 0.0  # the curvature of a penalty, which all parameters have beside the factors
    # How many samples of the set they are estimated from; None: from all of them.
    samples: int | None = None

    def damped(self, space: Space, damping: float) -> DampedFactors | None:
        """The matrix with a damping, and its inverse; None if the factors are unusable."""
        pairs = list(_unpacked(space, self.blocks, self.entries))
        stacks = _stacked(space, list(itertools.chain(*pairs)))
        each = iter(_mean_eigenvalues(space, stacks))
        scales = [[next(each) for _ in pair] for pair in pairs]
        sizes = [math.prod(block.shape) for block in self.blocks]
        means = [math.prod(scale) for scale in scales]
        mean = sum(map(operator.mul, sizes, means)) / sum(sizes)
        if not 0 < mean < math.inf:
            return None
        damping = max(damping, MEAN_SHARE * mean)
        for _ in range(MOST_TRIALS):
            shifts = [shift for scale in scales for shift in _shifts(scale, damping)]
            shifted = [_shifted(space, stack, shifts) for stack in stacks]
            inverses = _inverses(space, shifted)
            if inverses is not None:
                times, solves = _joined(space, shifted), _joined(space, inverses)
                return DampedFactors(self.blocks, times, solves)
            damping *= MORE
        return None


@dataclass(frozen=True)
class Stack:
    """Factors of one shape, as one array, so that few operations serve many layers."""

    array: Array  # the factors
    places: list[int]  # where each stands among all factors


@dataclass(frozen=True)
class DampedFactors:
    """A positive definite matrix P, and its inverse, as factors."""

    blocks: tuple[Block, ...]  # the blocks
    # The entries of the factors of P, and those of P^-1.
    times: Array
    solves: Array

    def multiply(self, space: Space, v: Array) -> Array:
        """P v, for a vector or for each row of an array."""
        return multiply(space, self.blocks, self.times, v, "multiply")

    def solve(self, space: Space, w: Array) -> Array:
        """P^-1 w, likewise."""
        return multiply(space, self.blocks, self.solves, w, "solve")


def multiply(
    space: Space, blocks: tuple[Block, ...], entries: Array, v: Array, name: str = ""
) -> Array:
    """The matrix with these factors, times a vector or times each row of an array."""
    return space.repeated(name, blocks, partial(_multiply, space), entries, v)


def _multiply(space: Space, blocks: tuple[Block, ...], entries: Array, v: Array) -> Array:
    pieces: list[tuple[int, Array]] = []
    for block, factors in zip(blocks, _unpacked(space, blocks, entries), strict=True):
        M = block.matrix(space, v)
        if not block.structured:
            M = factors[0] * M
        else:
            A, B = factors
            M = A[:, None] * M if block.diagonal_rows else A @ M
            M = M * B if block.diagonal_columns else M @ B
        pieces += block.pieces(space, M)
    pieces.sort(key=lambda piece: piece[0])
    return space.xp.concat([piece for _, piece in pieces], axis=-1)


def _unpacked(space: Space, blocks: tuple[Block, ...], entries: Array) -> Iterator[list[Array]]:
    """The factors of each block."""
    at = 0
    for block in blocks:
        factors = []
        for shape in block.factor_shapes:
            end = at + math.prod(shape)
            factors.append(space.xp.reshape(entries[at:end], shape))
            at = end
        yield factors


def _stacked(space: Space, factors: list[Array]) -> list[Stack]:
    """The factors in float64, those of each shape together."""
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for i, factor in enumerate(factors):
        by_shape.setdefault(tuple(factor.shape), []).append(i)
    return [
        Stack(space.in_double(space.xp.stack([factors[i] for i in places])), places)
        for places in by_shape.values()
    ]


def _mean_eigenvalues(space: Space, stacks: list[Stack]) -> list[float]:
    """The mean eigenvalue of each factor, fetched in one transfer."""
    means = []
    for stack in stacks:
        M = stack.array
        diagonals = space.xp.linalg.diagonal(M) if M.ndim == 3 else M
        means.append(space.xp.mean(diagonals, axis=-1) if M.ndim > 1 else M)
    found = np.concatenate(space.to_host(*means))
    places = [i for stack in stacks for i in stack.places]
    return [float(found[k]) for k in np.argsort(places)]


def _shifts(scales: list[float], damping: float) -> list[float]:
    """What the damping adds to the diagonal of each factor of a block."""
    if len(scales) == 1:
        return [damping]
    of_rows, of_columns = scales
    ratio = of_rows / of_columns if of_rows > 0 and of_columns > 0 else 1.0
    return [(damping * ratio) ** 0.5, (damping / ratio) ** 0.5]


def _shifted(space: Space, stack: Stack, shifts: list[float]) -> Stack:
    """Factors with more on their diagonals."""
    M = stack.array
    added = space.xp.asarray([shifts[i] for i in stack.places], dtype=M.dtype, device=space.device)
    added = space.xp.reshape(added, (-1,) + (1,) * (M.ndim - 1))
    if M.ndim == 3:
        added = added * space.xp.eye(M.shape[-1], dtype=M.dtype, device=space.device)
    return Stack(M + added, stack.places)


def _inverses(space: Space, stacks: list[Stack]) -> list[Stack] | None:
    """The inverse of each factor, by Cholesky; None if one is not positive definite."""
    found, failures = [], []
    for stack in stacks:
        if stack.array.ndim < 3:
            inverses = 1 / stack.array
        else:
            L, failed = space.xp.linalg.cholesky_ex(stack.array)  # torch's: only it has factors
            inverses = space.xp.cholesky_inverse(L)
            failures.append(space.xp.sum(failed))
        found.append(Stack(inverses, stack.places))
    return None if failures and any(space.floats(*failures)) else found


def _joined(space: Space, stacks: list[Stack]) -> Array:
    """All entries in one array, factor by factor, in the dtype of the vectors."""
    parts = {i: stack.array[k] for stack in stacks for k, i in enumerate(stack.places)}
    pieces = [space.xp.reshape(parts[i], (-1,)) for i in range(len(parts))]
    return space.in_own_dtype(space.xp.concat(pieces))
