"""How to solve normal equations, from the pattern of a sparse Jacobian.

Problem: J^T J will be factorised, or multiplied, many times with different entries in the same
places. Find out once which way is least work.

Algorithm: columns with entries in the same rows are a block, such as the three coordinates of a
point. Blocks that share no row can be eliminated together, because J^T J has no entries between
them. They are an independent set of the graph of blocks; those with few neighbours are taken first.
(The points of a bundle adjustment are such a set, and what remains is the Schur complement in the
cameras.) The remaining matrix is dense; or it is sparse, and a separator shows what its factors
cost; if they cost too much, conjugate gradients solve it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, eye_array
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee, shortest_path

from ksdmin._problem.arrays import Small

Indices = npt.NDArray[np.intp]
Way = Literal["dense", "sparse", "iterative"]

# Larger blocks are not eliminated.
MOST_COLUMNS = 16
# The time of an operation in a sparse product, and in sparse factors, relative to dense factors.
# (Measured on one core of a Xeon at 2.5 GHz, with SuperLU.)
PRODUCT_COST, FACTOR_COST = 10.0, 40.0
# Factors of planar graphs cost about so many times those of their separator (George 1973).
BESIDE_SEPARATOR = 10.0
# A guess of the number of products of a solution by conjugate gradients.
ITERATIONS = 1000
# The most entries of a matrix, or of its factors.
MOST_ENTRIES = 2e8


@dataclass(frozen=True)
class Pattern:
    """Where a Jacobian has entries, as blocks of columns."""

    block_of: Indices  # the block of each column
    sizes: Indices  # how many columns each block has
    graph: csr_array  # which blocks share a row


class Structure:
    """How normal equations of the pattern of a Jacobian are solved."""

    way: Way = "iterative"  # how what is left after the elimination is solved
    # The columns of both, block by block.
    eliminated: Indices
    kept: Indices
    # Where each eliminated column stands, if all blocks have as many as the largest.
    places: Indices
    block: int  # the columns of the largest eliminated block
    blocks: int  # how many there are
    kept_block: int  # what kept columns come in multiples of

    def __init__(self, J: csr_array) -> None:
        self.entries = _ones(J)
        n = J.shape[1]
        if _squares(J.indptr) > MOST_ENTRIES:  # J^T J is dense and too large
            alone = Pattern(np.arange(n), np.ones(n, dtype=np.intp), csr_array((n, n)))
            self._arrange(alone, np.zeros(n, dtype=bool))
            return
        pattern = pattern_of(J)
        products = ITERATIONS * PRODUCT_COST * 4.0 * J.nnz
        whole, way = factor_cost(pattern.graph, pattern.sizes)
        chosen = independent_blocks(pattern)
        left, left_way = eliminated_cost(pattern, chosen)
        if left < whole or products < whole:  # products, too, are faster with fewer unknowns
            whole, way = left, left_way
        else:
            chosen[:] = False
        self.way = way if whole <= products else "iterative"
        self._arrange(pattern, chosen)

    def _arrange(self, pattern: Pattern, chosen: npt.NDArray[np.bool_]) -> None:
        """The columns by blocks, with those of the `chosen` blocks apart."""
        order = np.argsort(pattern.block_of, kind="stable")
        inside = chosen[pattern.block_of[order]]
        self.kept, self.eliminated = order[~inside], order[inside]
        common = gcd(*(int(size) for size in np.unique(pattern.sizes[~chosen]))) or 1
        self.kept_block = max(c for c in range(1, MOST_COLUMNS + 1) if common % c == 0)
        sizes = pattern.sizes[chosen]
        self.block, self.blocks = int(sizes.max(initial=1)), len(sizes)
        within = np.arange(len(self.eliminated)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        self.places = np.repeat(np.arange(len(sizes)), sizes) * self.block + within


def as_structure(J: csr_array, known: Structure | None) -> Structure:
    """The structure of J; the known one, if J has entries only where its pattern has."""
    if known is None or known.entries.shape != J.shape:
        return Structure(J)
    own = known.entries
    if np.array_equal(J.indptr, own.indptr) and np.array_equal(J.indices, own.indices):
        return known
    both = csr_array(own + _ones(J))
    return known if both.nnz == own.nnz else Structure(both)


def _ones(J: csr_array) -> csr_array:
    """A matrix of ones where J has entries."""
    return csr_array((np.ones(J.nnz), J.indices, J.indptr), J.shape)


def pattern_of(J: csr_array) -> Pattern:
    """The blocks of columns, and which of them share a row."""
    (m, n), columns = J.shape, _ones(J).tocsc()
    # A number for each set of rows; two sets have the same number with probability 2^-64.
    keys = np.random.default_rng(0).integers(0, 2**63, m, dtype=np.uint64)
    sums = np.zeros(n, dtype=np.uint64)
    filled = np.diff(columns.indptr) > 0
    sums[filled] = np.add.reduceat(keys[columns.indices], columns.indptr[:-1][filled])
    _, first, block_of = np.unique(sums, return_index=True, return_inverse=True)
    empty = np.flatnonzero(~filled)[1:]  # columns without entries are blocks of their own
    block_of[empty] = len(first) + np.arange(len(empty))
    first = np.concatenate([first, empty])
    sizes = np.bincount(block_of)
    some = csr_array(columns[:, first])
    graph = csr_array(some.T @ some + eye_array(len(sizes)))  # also one without entries
    graph.data[:] = 1.0
    return Pattern(block_of.astype(np.intp), sizes.astype(np.intp), graph)


def independent_blocks(pattern: Pattern) -> npt.NDArray[np.bool_]:
    """A set of blocks of which no two share a row, preferably with few neighbours.

    Each round takes all blocks that come before all of their neighbours (Luby 1986).
    """
    graph, sizes = pattern.graph, pattern.sizes
    indptr, indices = graph.indptr, graph.indices
    degrees = np.asarray(graph @ sizes.astype(float))
    chance = np.random.default_rng(0).permutation(len(sizes))
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[np.lexsort((chance, degrees))] = np.arange(len(sizes))
    chosen = np.zeros(len(sizes), dtype=bool)
    left = sizes <= MOST_COLUMNS
    last = len(sizes)
    while left.any():
        ranks = np.where(left, rank, last)
        least = np.minimum.reduceat(ranks[indices], indptr[:-1])  # each is its own neighbour
        taken = left & (least == rank)
        chosen |= taken
        beside = np.asarray(graph @ taken.astype(float)) > 0
        left &= ~beside
    return chosen


def factor_cost(graph: csr_array, sizes: Indices) -> tuple[float, Way]:
    """The cost of factors, in operations of dense factors, and their kind."""
    n = float(sizes.sum())
    dense = n**3 / 3 if n * n <= MOST_ENTRIES else np.inf
    width = separator(graph, sizes)
    beside = np.asarray(graph @ sizes.astype(float)) / 2  # half of them come later
    entries = float(sizes @ beside) + BESIDE_SEPARATOR * width**2
    operations = float(sizes @ beside**2) + BESIDE_SEPARATOR * width**3 / 3
    sparse = FACTOR_COST * operations if entries <= MOST_ENTRIES else np.inf
    return (dense, "dense") if dense <= sparse else (sparse, "sparse")


def eliminated_cost(pattern: Pattern, chosen: npt.NDArray[np.bool_]) -> tuple[float, Way]:
    """The whole cost if the `chosen` blocks are eliminated first."""
    links, sizes = pattern.graph[chosen][:, ~chosen], pattern.sizes
    if not chosen.any() or _squares(links.indptr) > MOST_ENTRIES:
        return np.inf, "iterative"
    left = csr_array(pattern.graph[~chosen][:, ~chosen] + links.T @ links)
    left.data[:] = 1.0
    cost, way = factor_cost(left, sizes[~chosen])
    beside = np.asarray(links @ sizes[~chosen].astype(float))
    return cost + PRODUCT_COST * float(sizes[chosen] @ beside**2), way


def _squares(indptr: Indices) -> float:
    """The sum of squares of the numbers of entries per row: the work of a product with itself."""
    counts = np.diff(indptr).astype(float)
    return float(counts @ counts)


def separator(graph: csr_array, sizes: Indices) -> float:
    """The columns of a level of a breadth-first search, in the middle of the largest component."""
    if not len(sizes):
        return 0.0
    _, component = connected_components(graph, directed=False)
    weights = np.bincount(component, weights=sizes)
    own = np.flatnonzero(component == int(np.argmax(weights)))
    part = csr_array(graph[own][:, own])
    end = int(reverse_cuthill_mckee(part, symmetric_mode=True)[0])
    depths = shortest_path(part, indices=end, unweighted=True).astype(np.intp)
    widths = np.bincount(depths, weights=sizes[own])
    middle = int(np.searchsorted(np.cumsum(widths), widths.sum() / 2))
    return float(widths[middle])


class SparseRows(NamedTuple):
    """A sparse Jacobian, and what its pattern says."""

    matrix: csr_array  # the Jacobian
    structure: Structure  # how its normal equations are solved
    # For rows with the weights of a robust loss: the least and the largest ones that a step may
    # take, relative to these.
    weights: tuple[Small, Small] | None = None
