"""Small matrices: their factors, eigenvectors, largest entries."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ksdmin._ksd.factor import cholesky, eigenvectors, largest_entry


def symmetric(n):
    A = np.random.default_rng(n).standard_normal((n, n))
    return A + A.T


@pytest.mark.parametrize("n", [1, 2, 3, 20, 100])
def test_eigenvectors_are_those_of_numpy(n):
    H = symmetric(n)
    values, E = eigenvectors(H)
    expected, _ = np.linalg.eigh(H)
    assert_allclose(values, expected, rtol=1e-12, atol=1e-12 * n)
    assert_allclose(E @ np.diag(values) @ E.T, H, atol=1e-12 * n)
    assert E.flags.c_contiguous  # products with it are then the same, bit for bit


def test_the_matrix_is_not_overwritten():
    H = np.asfortranarray(symmetric(4))
    before = H.copy()
    eigenvectors(H)
    cholesky(H, 0.0)
    largest_entry(H)
    assert_array_equal(H, before)


@pytest.mark.parametrize(
    ("entries", "expected"), [([[1, -3], [2, 0]], 3.0), (np.zeros((0, 0)), 0.0), ([[-0.5]], 0.5)]
)
def test_the_largest_entry(entries, expected):
    assert largest_entry(np.array(entries, dtype=float)) == expected


def test_the_largest_entry_of_a_part_of_a_matrix():
    H = np.zeros((5, 5))
    H[3, 3], H[1, 0] = 9.0, -2.0
    assert largest_entry(H[:2, :2]) == 2.0


def test_cholesky_refuses_a_condition_number_that_is_too_large():
    H = np.diag([1.0, 1e-6])
    assert cholesky(H, 1e-5) is None
    lower = cholesky(H, 1e-7)
    assert lower is not None
    assert_allclose(np.diag(lower), [1.0, 1e-3])
    assert cholesky(np.diag([1.0, -1.0]), 0.0) is None
