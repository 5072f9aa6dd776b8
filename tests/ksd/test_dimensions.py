"""How many vectors a run keeps: the defaults, and a budget of memory."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess_prod

import ksdmin
from ksdmin._ksd.dimensions import (
    MAX_BASIS_BYTES,
    Dimensions,
    choose_dimensions,
)
from ksdmin._options import Options
from ksdmin._problem.arrays import Space

N = 1000
SPACE = Space(np.zeros(N))


def choose(parts=None, space=SPACE, **options):
    return choose_dimensions(space, Options(**options), parts)


def test_defaults():
    assert choose() == Dimensions(100, 100, memory=0, pairs=20, model_is_cheap=False)
    assert choose(parts=20) == Dimensions(20, 100, memory=5, pairs=40)


@pytest.mark.parametrize(
    ("n", "pairs", "cheap"),
    [(2, 40, True), (250, 40, True), (500, 36, False), (10**6, 5, False)],
)
def test_a_plain_function_of_many_unknowns_has_few_pairs(n, pairs, cheap):
    dims = choose(space=Space(np.zeros(n)))
    assert (dims.pairs, dims.model_is_cheap) == (pairs, cheap)


@pytest.mark.parametrize(("fitting", "pairs"), [(1000, 40), (20, 10), (1, 0)])
def test_a_large_net_has_only_the_pairs_that_fit(fitting, pairs):
    space = SimpleNamespace(n=N, vector_bytes=MAX_BASIS_BYTES // fitting)
    assert choose_dimensions(space, Options(), 20, nonlinear=True).pairs == pairs
    assert choose_dimensions(space, Options(), 20, nonlinear=False).pairs == 40


def test_a_dimension_that_is_given_holds_for_all_sets():
    given = choose(parts=20, krylov_dim=30, memory=3)
    assert given == Dimensions(30, 30, memory=3, pairs=40)


def test_a_wide_basis_for_the_whole_set_stays_small():
    """A billion bytes hold 50 vectors of so many numbers; K itself is not touched."""
    long = Space(np.zeros(MAX_BASIS_BYTES // (8 * 50)))
    assert choose(space=long, parts=20).whole_dim == 50
    longer = Space(np.zeros(MAX_BASIS_BYTES // (8 * 10)))
    assert choose(space=longer, parts=20).whole_dim == 20


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


def test_the_budget_counts_bytes_of_the_dtype():
    small = Space(np.zeros(N, dtype=np.float32))
    budget = 40 * N * 8
    assert choose(space=small, parts=20, memory_budget=budget) == choose(
        parts=20, memory_budget=2 * budget
    )


def test_a_budget_for_less_than_a_vector_is_refused():
    with pytest.raises(ValueError, match=r"memory_budget=.*at least one vector"):
        choose(memory_budget=N * 8 - 1)


def test_a_run_keeps_to_its_budget():
    n = 50
    options = {"memory_budget": 8 * n * 10}
    res = ksdmin.minimize(rosen, np.zeros(n), jac=rosen_der, hessp=rosen_hess_prod, options=options)
    assert res.success
    assert 1 < res.history["dim"].max() <= 10
