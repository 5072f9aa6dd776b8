"""How many vectors a run keeps: a budget of memory."""

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess_prod

import ksdmin
from ksdmin._ksd.dimensions import choose_dimensions
from ksdmin._options import Options
from ksdmin._problem.arrays import Space

N = 1000
SPACE = Space(np.zeros(N))


def choose(parts=None, space=SPACE, **options):
    return choose_dimensions(space, Options(**options), parts)


@pytest.mark.parametrize("vectors", [1, 2, 5, 6, 12, 29, 30, 100, 250, 10_000])
@pytest.mark.parametrize("parts", [None, 20])
def test_a_budget_is_kept(vectors, parts):
    """All of it is used, as far as that is any good."""
    dims, free = choose(parts, memory_budget=vectors * N * 8), choose(parts)
    assert dims.vectors <= vectors
    assert dims.krylov_dim >= 1
    if free.vectors <= vectors:
        assert dims == free
    else:
        assert dims.krylov_dim == free.krylov_dim or dims.vectors == vectors


def test_a_budget_for_less_than_a_vector_is_refused():
    with pytest.raises(ValueError, match=r"memory_budget=.*at least one vector"):
        choose(memory_budget=N * 8 - 1)


def test_a_run_keeps_to_its_budget():
    n = 50
    options = {"memory_budget": 8 * n * 10}
    res = ksdmin.minimize(rosen, np.zeros(n), jac=rosen_der, hessp=rosen_hess_prod, options=options)
    assert res.success
    assert 1 < res.history["dim"].max() <= 10
