"""The diagonal preconditioner: what is made of a diagonal."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ksdmin._ksd.precond import diagonal_preconditioner as preconditioner
from ksdmin._problem.arrays import Space

SPACE = Space(np.zeros(4))
DIAGONAL = np.array([0.0, 1e-9, 1.0, 3.0])


def test_a_diagonal_of_the_hessian_is_floored():
    assert_allclose(preconditioner(SPACE, DIAGONAL, 1e-4, 1.0), [3e-4, 3e-4, 1.0, 3.0])


def test_one_of_squared_gradients_is_not_trusted_where_it_is_small():
    D = preconditioner(SPACE, DIAGONAL, 1e-10, 0.75)
    assert_allclose(D, [0.1**0.75, 0.1**0.75, 1.1**0.75, 3.1**0.75], rtol=1e-6)


@pytest.mark.parametrize("power", [0.75, 1.0])
def test_it_does_not_depend_on_the_unit_of_the_loss(power):
    one, other = (preconditioner(SPACE, c * DIAGONAL, 1e-4, power) for c in (1.0, 1e6))
    assert_allclose(other / other[0], one / one[0])


@pytest.mark.parametrize("diagonal", [np.zeros(4), np.full(4, np.inf), np.full(4, np.nan)])
def test_what_is_no_diagonal_leaves_the_identity(diagonal):
    assert_array_equal(preconditioner(SPACE, diagonal, 1e-4, 0.75), np.ones(4))
