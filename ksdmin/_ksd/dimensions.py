"""How many vectors a run keeps: the dimensions of the basis, and what memory they need."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ksdmin._options import Options
from ksdmin._problem.arrays import Space

PLAIN_DIM = 100  # of the Krylov space, where every set is the whole; on samples, the most
MAX_BASIS_BYTES = 2**30  # a basis is made wider than need be only as far as this
NET_WIDENING = 2  # times the first K: a net is nonlinear too soon for more
NET_SAMPLES = 1000  # in B, for a nonlinear model: beyond that a wider space gains more


@dataclass(frozen=True)
class Dimensions:
    """What an iteration keeps at most, in vectors.

    Attributes
    ----------
    krylov_dim, whole_dim : int
        K at first while the curvature is of a sample; and where it is of the whole set.
    memory, whole_memory : int
        Previous directions that are adjoined, likewise.
    pairs : int
        Of the quasi-Newton model.
    nonlinear : bool
        Whether the model is not linear in its parameters.
    """

    krylov_dim: int
    whole_dim: int
    memory: int
    whole_memory: int
    pairs: int
    nonlinear: bool = False

    @property
    def widest(self) -> int:
        """As far as K may grow on samples."""
        if not self.nonlinear:
            return self.whole_dim
        return min(self.whole_dim, NET_WIDENING * self.krylov_dim)

    @property
    def vectors(self) -> int:
        """The most at a time: the basis, the directions; with a model, the products and pairs."""
        K, m = max(self.krylov_dim, self.whole_dim), self.memory
        return K + 2 * m + (K + m + 2 * self.pairs if self.pairs else 0)


def choose_parts(space: Space, samples: int | None, nonlinear: bool, fewest: int, most: int) -> int:
    """The first K, and 1 / the share of the samples in B and C, so that K products cost 2 passes.

    Nonlinear models with many samples take more: a larger space for smaller sets.
    """
    if samples is None or not nonlinear:
        return fewest
    return max(fewest, min(most, samples // NET_SAMPLES, affordable(space)))


def affordable(space: Space) -> int:
    """How many vectors fit into `MAX_BASIS_BYTES`."""
    return int(MAX_BASIS_BYTES // (space.n * space.itemsize))


def choose_dimensions(
    space: Space, options: Options, parts: int | None, nonlinear: bool = False
) -> Dimensions:
    """The options', or the defaults: with sets of 1 / `parts` of the samples, or for the whole."""
    K = int(options.krylov_dim or parts or PLAIN_DIM)
    whole_dim = K if options.krylov_dim else max(K, min(PLAIN_DIM, affordable(space)))
    memory, whole_memory = (
        (5 if parts else 1, 1) if options.memory is None else 2 * (int(options.memory),)
    )
    pairs = int(min(40, max(10, 2 * space.n)) if options.pairs is None else options.pairs)
    wanted = Dimensions(K, whole_dim, memory, whole_memory, pairs, nonlinear)
    if options.memory_budget is None or math.isinf(options.memory_budget):
        return wanted
    return within(wanted, int(options.memory_budget // (space.n * space.itemsize)), options)


def within(wanted: Dimensions, vectors: int, options: Options) -> Dimensions:
    """No more than so many vectors: the model gives way first, then K, then the memory."""
    if wanted.vectors <= vectors:
        return wanted
    if vectors < 1:
        raise ValueError(
            f"option memory_budget={options.memory_budget!r}: a basis needs room for at least one "
            "vector as long as x0"
        )
    memory = min(wanted.memory, vectors // 6)  # two thirds are left for the Krylov vectors
    K = vectors - 2 * memory
    return replace(
        wanted,
        krylov_dim=min(wanted.krylov_dim, K),
        whole_dim=min(wanted.whole_dim, K),
        memory=memory,
        whole_memory=min(wanted.whole_memory, memory),
        pairs=0,
    )
