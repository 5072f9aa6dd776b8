"""What a step costs, from sizes alone: a Krylov space against the whole curvature matrix.

The unit is a floating-point operation of a large matrix product. Sizes and the problem's traits
decide, never a clock, so that the same seed gives the same run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ksdmin._problem.protocol import CALL_COST

# All measured once, on one core of a Xeon at 2.5 GHz with OpenBLAS, n from 50 to 1000. A
# matrix-vector product is limited by memory: an operation takes 4 to 17 times as long as in a
# matrix product.
MEMORY_BOUND = 8
# A factorised matrix serves several steps. The number of products that it replaces, as a share of
# the vectors that a Krylov space may have. With twice this share, regressions of 10 classes or
# with more unknowns than samples used the matrix, and took twice as long as with products.
REPLACED_SHARE = 1 / 4
# What the first matrix of a run may cost, in gradients over all samples. A run needs about ten
# of these as well.
MATRIX_IN_GRADIENTS = 10
# Writing an entry of a net's Jacobian by reverse passes, and reading it again (torch, 2 cores of
# an aarch64 server: 200 to 600, nets of 481 to 9,873 parameters).
ROW_ENTRY = 300
SAMPLES_PER_UNKNOWN = 4
# The rank of the first factors of physics-informed nets: 64 at first, 200 to 600 half way.
EXPECTED_RANK = 256


@dataclass(frozen=True)
class Costs:
    """The costs of a step's parts."""

    n: int  # the number of unknowns
    # How many samples the gradient is of, and the curvature; 1 for a plain function.
    A: int
    B: int
    matrix_cost: float | None  # as the problem's traits have it
    # Of the Jacobian that Gauss-Newton steps are made of; 0 where there is a matrix instead.
    rows: float = 0.0
    # As the problem's traits have them.
    product_cost: float | None = None
    call_cost: float = CALL_COST
    of_products: bool = False  # whether the matrix is made of a product for each column
    rank: float = math.inf  # how many columns a factor of its equations has: no more than its rows
    # How many times as long an operation of its equations takes: they are in float64.
    in_double: float = 1.0

    @property
    def contested(self) -> bool:
        """Whether steps of the whole curvature compete with all others, turn by turn."""
        return self.rows > 0 or self.of_products

    @property
    def gradient(self) -> float:
        """A value and its gradient."""
        return self.call_cost + self._per_sample * self.A

    @property
    def _per_sample(self) -> float:
        return self.product_cost or 2 * read(self.n)  # forth and back

    @property
    def value(self) -> float:
        """A value alone, on the samples of the curvature: half a gradient (torch: 0.4 to 0.7)."""
        return (self.call_cost + self._per_sample * self.B) / 2

    @property
    def product(self) -> float:
        """One curvature product; with the matrix, if that is the only way."""
        if self.matrix_cost == 0 and not self.rows:
            return self.call_cost + read(self.n**2)
        return self.gradient  # on as many samples: on fewer, a space is less useful

    @property
    def matrix(self) -> float:
        """The curvature matrix."""
        if self.of_products:
            return self.n * (self.call_cost + self._per_sample * self.B)
        products = self.matrix_cost or self.n / 2
        return self.call_cost + products * self.B * 2 * read(self.n) / MEMORY_BOUND

    def krylov(self, K: float) -> float:
        """A Krylov space of K vectors: the products, and a call of our own for each vector."""
        needed = self.matrix if self.matrix_cost == 0 and not self.rows else 0.0
        return needed + min(K, self.n) * (self.product + self.call_cost)

    def rows_come_first(self, K: int) -> bool:
        """Whether a run should begin with Gauss-Newton steps.

        It should if they cost a few gradients, as for differential equations, whose factors have
        low rank. Otherwise only if they cost no more than the products that a matrix replaces.
        """
        at_first = self.with_rank(EXPECTED_RANK).whole_curvature
        few = at_first <= MATRIX_IN_GRADIENTS * self.gradient
        return few or self.whole_curvature <= self.replaced(K)

    def replaced(self, K: int) -> float:
        """How many products a factorised matrix replaces, if a space has at most K vectors."""
        return self.krylov(REPLACED_SHARE * K)

    @property
    def whole_curvature(self) -> float:
        """The whole curvature: the matrix, and its factorisation.

        With a Jacobian the matrix is of the smaller of its two dimensions, and may be of low rank.
        """
        if not self.rows:
            return self.matrix + self.call_cost + factorisation(self.n, self.n)
        small, large = sorted((float(self.n), self.rows))
        rank = min(self.rank, small)
        columns = self.in_double * 2 * rank * small * large
        return self.jacobian + self.call_cost + columns + factorisation(small, rank)

    @property
    def jacobian(self) -> float:
        """The rows: reverse passes for all of them at once, and a matrix to write them into."""
        if self.matrix_cost == 0:  # they are there
            return self.call_cost
        return self.call_cost + 2 * self.product + ROW_ENTRY * self.rows * self.n

    def with_rank(self, rank: float | None) -> Costs:
        """The same with a factor of so many columns; None: not known."""
        return self if rank is None else replace(self, rank=rank)

    def gauss_newton(self, evaluations: int) -> float:
        """A Gauss-Newton step with so many values, and the gradient at its end."""
        return self.whole_curvature + self.gradient + evaluations * self.value

    @property
    def reused(self) -> float:
        """A step that uses a matrix computed before."""
        return self.call_cost + self.gradient


def samples_of_products(N: int, n: int) -> int:
    """How many of N samples the first matrix should use, if it is made of n products.

    As many as cost a gradient, but a few for each unknown.
    """
    samples = max(N // n, SAMPLES_PER_UNKNOWN * n)
    return N if 2 * samples > N else samples


class MarginalGain:
    """When a Gauss-Newton step should end: when a new step would gain more for its work.

    The step goes on as long as its last evaluation lowered what is left to gain by a larger factor
    than the step so far, per evaluation's worth of work (with that of the Jacobian).
    """

    def __init__(
        self,
        left: float,  # what there is to gain at most where the step begins
        costs: Costs,  # what an evaluation costs, and the rest of the step
    ) -> None:
        self._left, self._rest = left, (costs.whole_curvature + costs.gradient) / costs.value
        self._fall, self._evaluations = 0.0, 0  # the logarithm at the last call

    def __call__(self, gained: float, evaluations: int) -> bool:
        """Whether the step should end after this gain."""
        if not 0 < gained < self._left:
            return gained > 0
        fall = -math.log1p(-gained / self._left)
        marginal = (fall - self._fall) / (evaluations - self._evaluations)
        self._fall, self._evaluations = fall, evaluations
        return marginal < fall / (self._rest + evaluations)


def read(numbers: float) -> float:
    """Reading so many numbers of a matrix once, multiplying and adding each."""
    return MEMORY_BOUND * 2.0 * numbers


def factorisation(order: float, rank: float) -> float:
    """Factorising a matrix: Cholesky has a third of the operations, at a third of the speed."""
    return order * float(rank) ** 2


def curvature_samples(whole: Costs, K: int) -> int | None:
    """How many samples the first matrix should use; in `whole`, B is all samples, too.

    It may cost as much as some gradients. With fewer than a few samples for each unknown it would
    say little about the whole. None if even that is more work than Krylov spaces of K vectors.
    """
    per_sample = (whole.matrix - whole.call_cost) / whole.B
    affordable = MATRIX_IN_GRADIENTS * whole.gradient / per_sample
    enough = max(int(affordable), SAMPLES_PER_UNKNOWN * whole.n)
    B = whole.B if 2 * enough > whole.B else enough
    cost = replace(whole, B=B).whole_curvature
    return B if cost <= whole.replaced(K) else None
