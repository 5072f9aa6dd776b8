"""The verb `matrix` of a problem: declared, checked, counted, and of functions."""

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess
from scipy.sparse import csr_array, eye_array

import ksdmin
from ksdmin import Traits

D = np.geomspace(1, 100, 8)


class Bowl:
    """A quadratic with its matrix."""

    traits = Traits(has_matrix=True)

    def __init__(self, H=None):
        self.H = np.diag(D) if H is None else H

    def value(self, x, idx):
        return x @ (D * x) / 2 - x.sum()

    def value_and_gradient(self, x, idx, *, diagonal=False):
        return self.value(x, idx), D * x - 1

    def curvature(self, x, idx):
        return lambda v: D * v

    def matrix(self, x, idx):
        x[:] = np.nan  # its own copy
        return self.H


def test_a_users_matrix_is_taken_and_counts_as_one():
    res = ksdmin.minimize(Bowl(), np.zeros(8))
    assert res.success
    assert (res.nit, res.nhev) == (1, 1)


@pytest.mark.parametrize(
    ("H", "error", "told"),
    [
        (np.eye(7), ValueError, r"matrix returned shape \(7, 7\), expected \(8, 8\)"),
        (np.ones(8), ValueError, r"matrix returned shape"),
        (1j * np.eye(8), TypeError, "matrix returned values that are not real numbers"),
        (eye_array(8), TypeError, "matrix returned a .*: expected a dense array"),
        (None, TypeError, "matrix returned None: is a return statement missing"),
    ],
    ids=["size", "vector", "complex", "sparse", "nothing"],
)
def test_what_it_returns_is_checked(H, error, told):
    own = type("Own", (Bowl,), {"matrix": lambda self, x, idx: H})
    with pytest.raises(error, match=told):
        ksdmin.minimize(own(), np.zeros(8))


def test_a_nan_ends_the_run():
    res = ksdmin.minimize(Bowl(np.full((8, 8), np.nan)), np.zeros(8))
    assert res.status == ksdmin.Status.NOT_FINITE


@pytest.mark.parametrize(
    ("n", "kind"), [(5, np.asarray), (100, csr_array)], ids=["dense", "sparse"]
)
def test_a_hessian_that_is_dense_or_small_is_the_matrix(n, kind):
    x = np.full(n, -1.2)
    problem = ksdmin.as_problem(rosen, jac=rosen_der, hess=lambda x: kind(rosen_hess(x)))
    np.testing.assert_array_equal(problem.matrix(x), rosen_hess(x))
    assert problem.traits.has_matrix
