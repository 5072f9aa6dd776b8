"""How many vectors a run keeps: the dimensions of the basis, and what memory they need."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ksdmin._options import Options
from ksdmin._problem.arrays import Space
from ksdmin._run.evaluator import Evaluator

PLAIN_DIM = 100  # of the Krylov space, where every set is the whole; on samples, the most
WIDE = 2**30  # bytes: a basis is made wider than need be only as far as this
WIDER = 1.2  # the factor by which K changes
NET_WIDTH = 2  # times the first K: a net bends too soon for more
TOLD, UNTOLD = 0.85, 0.75  # of the decrease that the quadratic model of B promised
ENOUGH = 1000  # samples tell a net's curvature well: beyond, a wider space gains more than they do


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
        return (
            min(self.whole_dim, NET_WIDTH * self.krylov_dim) if self.nonlinear else self.whole_dim
        )

    def next_width(self, width: int, full: bool, achieved: float, modelled: float) -> int:
        """K for the next sample, after a step whose space was as large as allowed (`full`) or not.

        Where the model of B told the decrease on A, it is the space that limits the step. Where
        it did not, a larger space would fit the few samples still better, not the whole set.
        """
        if not achieved >= UNTOLD * modelled:
            return max(self.krylov_dim, round(width / WIDER))
        grows = full and achieved > TOLD * modelled
        return min(self.widest, round(width * WIDER)) if grows else width

    @property
    def vectors(self) -> int:
        """The most at a time: the basis, the directions; with a model, the products and pairs."""
        K, m = max(self.krylov_dim, self.whole_dim), self.memory
        return K + 2 * m + (K + m + 2 * self.pairs if self.pairs else 0)


def choose_parts(evaluator: Evaluator, fewest: int, most: int) -> int:
    """K, the samples being split into so many sets: a product for each costs a pass in any case.

    Nets of many samples take more: a larger space for smaller sets. A linear model does not gain.
    """
    samples, space = evaluator.subsets.n, evaluator.space
    if samples is None or not evaluator.nonlinear:
        return fewest
    return max(fewest, min(most, samples // ENOUGH, wide(space)))


def wide(space: Space) -> int:
    """How many vectors fit into `WIDE`."""
    return int(WIDE // (space.n * space.itemsize))


def choose_dimensions(
    space: Space, options: Options, parts: int | None, nonlinear: bool = False
) -> Dimensions:
    """The options', or the defaults: with sets of 1 / `parts` of the samples, or for the whole."""
    K = int(options.krylov_dim or parts or PLAIN_DIM)
    whole_dim = K if options.krylov_dim else max(K, min(PLAIN_DIM, wide(space)))
    memory, whole_memory = (
        (5 if parts else 1, 1) if options.memory is None else 2 * (int(options.memory),)
    )
    pairs = int(min(40, max(10, 2 * space.n)) if options.pairs is None else options.pairs)
    wanted = Dimensions(K, whole_dim, memory, whole_memory, pairs, nonlinear)
    if options.memory_budget is None:
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
