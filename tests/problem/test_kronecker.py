"""Kronecker factors: the matrix that they stand for, its damping and its inverse."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from ksdmin._problem.arrays import Space
from ksdmin._problem.kronecker import Block, Factors, entry_count, multiply

torch = pytest.importorskip("torch")

# A weight with a bias behind it, one with a row for a bias before it, an embedding, a rest.
BLOCKS = (
    Block(0, 3, 2, bias=6),
    Block(13, 2, 4, bias=9, bias_is_row=True),
    Block(21, 3, 2, diagonal_rows=True),
    Block(27, 2, 1, structured=False),
)
N = 29
SPACE = Space(torch.zeros(N, dtype=torch.float64))


def factors_of(seed=0):
    rng = np.random.default_rng(seed)
    made = []
    for block in BLOCKS:
        for shape in block.factor_shapes:
            root = rng.standard_normal((*shape[:1], 7))
            made.append(root @ root.T / 7 if len(shape) == 2 else 0.1 + rng.random(shape))
    return made


def packed(factors):
    return torch.as_tensor(np.concatenate([np.reshape(factor, -1) for factor in factors]))


def dense(entries):
    """The matrix on the flat vector, by its columns."""
    columns = [multiply(SPACE, BLOCKS, entries, e) for e in torch.eye(N, dtype=torch.float64)]
    return torch.stack(columns, dim=1).numpy()


def test_a_block_is_a_kronecker_product():
    """With its bias behind the weights or as a row; a side may be diagonal, a block a number."""
    A, B, C, D, a, E, number = factors_of()
    matrix = dense(packed(factors_of()))
    # M has the bias as its last column: row by row, M is the vector that A (x) B multiplies
    behind, row = [0, 1, 6, 2, 3, 7, 4, 5, 8], [*range(13, 21), *range(9, 13)]
    assert_allclose(matrix[np.ix_(behind, behind)], np.kron(A, B))
    assert_allclose(matrix[np.ix_(row, row)], np.kron(C, D))
    assert_allclose(matrix[21:27, 21:27], np.kron(np.diag(a), E))
    assert_allclose(matrix[27:, 27:], number * np.eye(2))


def test_the_damped_inverse():
    damped = Factors(BLOCKS, packed(factors_of())).damped(SPACE, 1e-2)
    v = torch.as_tensor(np.random.default_rng(1).standard_normal((3, N)))
    assert_allclose(damped.solve(SPACE, damped.multiply(SPACE, v)), v, atol=1e-10)
    one = damped.solve(SPACE, v[0])
    assert_allclose(one, damped.solve(SPACE, v)[0], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_without_damping_there_is_a_little_in_the_scale_of_the_factors(scale):
    """Factors of few samples are singular."""
    singular = [np.ones(np.shape(f)) * scale for f in factors_of()]
    damped = Factors(BLOCKS, packed(singular)).damped(SPACE, 0.0)
    assert damped.solves.isfinite().all()
    assert (np.linalg.eigvalsh(dense(damped.solves)) > 0).all()


def test_a_factor_that_rounding_made_indefinite():
    factors = factors_of()
    factors[0] = factors[0] - 1.01 * np.linalg.eigvalsh(factors[0])[0] * np.eye(3)
    damped = Factors(BLOCKS, packed(factors)).damped(SPACE, 1e-20)
    assert (np.linalg.eigvalsh(dense(damped.solves)) > 0).all()


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_factors_that_are_of_no_use(value):
    entries = torch.full((entry_count(BLOCKS),), value, dtype=torch.float64)
    assert Factors(BLOCKS, entries).damped(SPACE, 1.0) is None
