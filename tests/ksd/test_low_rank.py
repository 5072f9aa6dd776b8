"""Shifted outer products, of low rank or whole."""

import numpy as np
import pytest
import torch

from ksdmin._ksd.gauss_newton import ShiftedOuterProduct
from ksdmin._problem.arrays import Space

N = 600
IN_DOUBLE = (
    ("numpy", "float64"),
    ("torch", "float64"),
    pytest.param(("torch-cuda", "float64"), marks=pytest.mark.cuda),
    ("jax", "float64"),
)


def matrix(ratio, rows=N, columns=700):
    """With singular values that fall like a geometric series."""
    rng = np.random.default_rng(0)
    U, _ = np.linalg.qr(rng.standard_normal((rows, rows)))
    V, _ = np.linalg.qr(rng.standard_normal((columns, rows)))
    return (U * ratio ** np.arange(rows)) @ V.T


def product_of(A, kind="numpy", **given):
    taken = A if kind == "numpy" else torch.tensor(A)
    return ShiftedOuterProduct(Space(taken[0]), taken, **given), taken[0]


def dense_inverse(product, like, shift):
    """What the solver does, column by column."""
    solve, eye = product.solver(shift).of_product, np.eye(product.order)
    to = torch.tensor if isinstance(like, torch.Tensor) else np.asarray
    return np.stack([np.asarray(solve(0 * like, to(e))) for e in eye], axis=1)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("shift", [1e-1, 1e-4, 1e-7])
def test_fast_falling_eigenvalues_take_few_columns(kind, shift):
    """What is left out is between 0 and the shift: that is a factor of 2 at most."""
    A = matrix(0.8)
    product, like = product_of(A, kind)
    inverse = dense_inverse(product, like, shift)
    assert product.rank <= 150
    assert float(product.trace) == pytest.approx(np.sum(A * A))
    solved = np.linalg.eigvals(inverse @ (A @ A.T + shift * np.eye(N))).real
    assert 1 - 1e-5 < solved.min()
    assert solved.max() < 2 + 1e-5


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_slowly_falling_ones_are_taken_as_a_whole(kind):
    A = matrix(0.999)
    product, like = product_of(A, kind)
    inverse = dense_inverse(product, like, 0.1)
    np.testing.assert_allclose(inverse @ (A @ A.T + 0.1 * np.eye(N)), np.eye(N), atol=1e-10)
    assert (product.rank, product.whole_below) == (N, 0.1)


def test_a_shift_above_all_eigenvalues_and_a_matrix_of_zeros():
    for A, shift in ((matrix(0.8), 1e9), (np.zeros((N, 700)), 2.0)):
        product, like = product_of(A)
        solved = product.solver(shift).of_product(0 * like, np.ones(N))
        np.testing.assert_allclose(solved, np.full(N, 1 / shift))


@pytest.mark.parametrize("shift", [1e-17, 1e-27])
@pytest.mark.parametrize("backend", IN_DOUBLE, indirect=True)
def test_shifts_that_the_rounding_of_the_product_hides(backend, shift):
    """Singular values from 1 to 1e-13: those below 1e-8 are lost in A A^T."""
    A = matrix(10 ** (-13 / 59), rows=60, columns=90)
    U, s, Vt = np.linalg.svd(A, full_matrices=False)
    e, b, taken = np.ones(90), A @ np.ones(90), backend.asarray(A)
    product = ShiftedOuterProduct(Space(taken[0]), taken)
    assert product.least_shift < shift
    solved = product.solver(shift)
    shares = s / (s * s + shift)
    found, known = solved.then_transposed(backend.asarray(b)), Vt.T @ (shares * (U.T @ b))
    np.testing.assert_allclose(backend.to_numpy(found), known, atol=1e-3 * np.linalg.norm(known))
    known = U @ (shares * (Vt @ e))
    for part, q in ((e, None), (e / 2, A @ e / 2)):
        found = solved.of_product(backend.asarray(part), None if q is None else backend.asarray(q))
        error = np.linalg.norm(backend.to_numpy(found) - known)
        assert error < (1e-3 if q is None else 1e-1) * np.linalg.norm(known)


def test_a_shift_that_rounding_hides():
    """In float32, of rows that differ by their rounding alone."""
    product, _ = product_of(1e4 * np.ones((N, 700), dtype=np.float32))
    assert product.least_shift == 0.0
    assert product.solver(1e-12) is None
    product, _ = product_of(1e4 * np.ones((N, 700)))
    assert product.solver(1e-3 * product.least_shift) is None
