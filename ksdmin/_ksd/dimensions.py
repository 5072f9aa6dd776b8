"""How many vectors a run keeps: the dimensions of the basis, and what memory they need."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ksdmin._ksd.cost_model import read
from ksdmin._ksd.presets import PAPER
from ksdmin._options import Options
from ksdmin._problem.arrays import Space
from ksdmin._problem.protocol import CALL_COST

# Intervals are measured by examples/benchmarks/ablation.py. K if every set is the whole; on
# samples, the largest K. 50 takes 20% more passes on regressions, 200 changes nothing.
PLAIN_DIM = 100
MAX_BASIS_BYTES = 2**30  # a basis grows beyond its default only up to this
# Previous steps: on samples, directions that are adjoined (the paper has 1); of a plain function
# with very many unknowns, pairs of the model. On samples 1 and 2 take 6% and 3% fewer passes on
# regressions (other draws: 4%), 10 2% more, and leaves nets 19% more excess.
MEMORY = 5
# Pairs of the quasi-Newton model. With 20, sums of losses take 10% [4%, 18%] more passes; with 80,
# 4% [1%, 8%] fewer, for twice the memory.
PAIRS = 40
# K with Kronecker factors, which leave less to do; then there is one previous direction, as in the
# paper. Among K = 2, 4, 8 and 20 with 0, 1 and 5 directions these are the best, or close to it, on
# MNIST's auto-encoder, a convolutional net and a transformer.
FACTORED_DIM = 4


@dataclass(frozen=True)
class Dimensions:
    """What an iteration keeps at most, in vectors."""

    # K while the curvature is of a sample, at most; and where it is of the whole set.
    krylov_dim: int
    whole_dim: int
    memory: int  # previous directions that are adjoined, where there is no model
    pairs: int  # of the quasi-Newton model
    nonlinear: bool = False  # whether the model is not linear in its parameters
    # Whether the quasi-Newton model certainly costs less than a product.
    model_is_cheap: bool = True

    @property
    def vectors(self) -> int:
        """The most at one time: the basis and directions; with a model, the products and pairs."""
        K, m = max(self.krylov_dim, self.whole_dim), self.memory
        return K + 2 * m + (K + m + 2 * self.pairs if self.pairs else 0)


def affordable(space: Space) -> int:
    """How many vectors fit into `MAX_BASIS_BYTES`."""
    return int(MAX_BASIS_BYTES // space.vector_bytes)


def cheap_pairs(n: int) -> int:
    """How many pairs take no longer than a call: both loops read both vectors of a pair."""
    return int(CALL_COST // (2 * read(2 * n)))


def choose_dimensions(
    space: Space,
    options: Options,
    parts: int | None,
    nonlinear: bool = False,
    factored: bool = False,
) -> Dimensions:
    """The user's options, or the defaults, for sets of 1 / `parts` of the samples or for the whole.

    `factored`: the preconditioner has Kronecker factors.
    """
    usual, directions = (FACTORED_DIM, PAPER["memory"]) if factored else (parts, MEMORY)
    K = int(options.krylov_dim or usual or PLAIN_DIM)
    whole_dim = K if options.krylov_dim else max(K, min(PLAIN_DIM, affordable(space)))
    memory = (directions if parts else 0) if options.memory is None else int(options.memory)
    pairs, cheap = PAIRS, cheap_pairs(space.n)
    if options.pairs is not None:
        pairs = int(options.pairs)
    elif parts is None:  # a plain function with many unknowns may be cheaper than the model
        pairs = min(PAIRS, MEMORY + cheap)
    elif nonlinear:  # a net may be so large that memory is short
        pairs = min(PAIRS, affordable(space) // 2)
    model_is_cheap = parts is not None or pairs <= cheap
    wanted = Dimensions(K, whole_dim, memory, pairs, nonlinear, model_is_cheap)
    if options.memory_budget is None or math.isinf(options.memory_budget):
        return wanted
    return within(wanted, int(options.memory_budget // space.vector_bytes), options)


def within(wanted: Dimensions, vectors: int, options: Options) -> Dimensions:
    """At most so many vectors: pairs are dropped first, then K and the directions in proportion."""
    if wanted.vectors <= vectors:
        return wanted
    if vectors < 1:
        raise ValueError(
            f"option memory_budget={options.memory_budget!r}: a basis needs room for at least one "
            "vector as long as x0"
        )
    for_both = max(wanted.krylov_dim, wanted.whole_dim) + 2 * wanted.memory
    memory = wanted.memory * min(vectors, for_both) // for_both
    K = vectors - 2 * memory
    return replace(
        wanted,
        krylov_dim=min(wanted.krylov_dim, K),
        whole_dim=min(wanted.whole_dim, K),
        memory=memory,
        pairs=0,
    )
