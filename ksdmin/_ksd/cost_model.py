"""What a step costs, from sizes alone: a Krylov space against the whole curvature matrix.

The unit is a floating-point operation of a large matrix product. Sizes and the problem's traits
decide, never a clock, so that the same seed gives the same run.
"""

from __future__ import annotations

from dataclasses import dataclass

# All measured once, on one core of a Xeon at 2.5 GHz with OpenBLAS, n from 50 to 1000. An operation
# of a matrix-vector product waits for memory: it takes 4 to 17 times as long as one of a matrix
# product.
MEMORY_BOUND = 8
# Cholesky, and the inverse made of it, per n^3. They take 1/3 and 2/3 n^3 operations, at a third of
# the speed of a matrix product.
FACTORISATION = 3
CALL = 1e6  # 20 to 50 microseconds: a call of the user's function, or of ours, beside its operations
VECTOR_CALLS = 4  # to orthogonalise a vector and measure it
PASSES_OVER_BASIS = 6  # Gram-Schmidt twice, and the curvature: matrix-vector products with V


@dataclass(frozen=True)
class Costs:
    """The costs of a step's parts.

    Attributes
    ----------
    n : int
        The number of unknowns.
    samples : int
        How many the curvature is of; 1 for a plain function.
    matrix_cost : float or None
        As the problem's traits have it.
    """

    n: int
    samples: int
    matrix_cost: float | None

    @property
    def gradient(self) -> float:
        """A value and its gradient."""
        return CALL + MEMORY_BOUND * 4.0 * self.samples * self.n

    @property
    def product(self) -> float:
        """One curvature product: with a matrix, where there is no other way to it."""
        if self.matrix_cost == 0:
            return CALL + MEMORY_BOUND * 2.0 * self.n**2
        return self.gradient

    @property
    def matrix(self) -> float:
        """The curvature matrix."""
        products = self.matrix_cost or self.n / 2
        return CALL + products * 4.0 * self.samples * self.n

    def krylov(self, K: float) -> float:
        """A Krylov space of K vectors."""
        own = VECTOR_CALLS * CALL + MEMORY_BOUND * PASSES_OVER_BASIS * self.n * K / 2
        needed = self.matrix if self.matrix_cost == 0 else 0.0
        return needed + K * (self.product + own)

    @property
    def exact(self) -> float:
        """The exact Newton step: the matrix, and its factorisation."""
        return self.matrix + VECTOR_CALLS * CALL + FACTORISATION * float(self.n) ** 3
