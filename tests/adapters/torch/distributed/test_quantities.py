"""What several processes compute together is what one computes, to the bit the same in each."""

import numpy as np
import pytest

import ksdmin
from tests.adapters.torch.distributed import cases

TIGHT = 1e-12  # relative, in float64


def assert_close(found, expected, rtol):
    assert np.abs(found - expected).max() <= rtol * np.abs(expected).max()


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("net", {}),
        ("net", {"chunk_size": 17}),
        ("net", {"curvature": "hessian"}),
        ("net", {"curvature": "empirical-fisher"}),
        ("linear", {}),
        ("classes", {}),
        ("weighted", {}),
        ("wide", {"chunk_size": 17}),
        ("blocks", {}),
        ("blocks", {"chunk_size": 7}),
        ("wide blocks", {}),
        ("linear blocks", {}),
        pytest.param("embedding", {}, marks=pytest.mark.slow),
        pytest.param("classes", {"chunk_size": 17}, marks=pytest.mark.slow),
    ],
)
def test_every_quantity_is_that_of_one_process(ranks, kind, arguments):
    in_one = {name: given for name, given in arguments.items() if name != "chunk_size"}
    expected = cases.quantities(cases.problem(kind, **in_one), kind)
    first, *others = ranks(cases.quantities_in_group, kind, arguments)
    assert first.keys() == expected.keys()
    for key, value in expected.items():
        assert_close(first[key], value, TIGHT)
        for other in others:
            np.testing.assert_array_equal(other[key], first[key])


def test_ranks_draw_masks_of_their_own(two):
    for first, second, both in two(cases.draws_in_group):
        assert first != second
        assert both != first


RUNS = {
    "deterministic": ("net", {"maxiter": 25}, (1.0, 1.0, 1.0, False)),
    "stochastic": ("net", {"maxiter": 10}, (0.6, 0.3, 0.3)),
    "growing": ("linear", {"without": ["newton", "gauss-newton"]}, (0.5, 0.1, 0.1)),
    "exact space": ("linear", {}, None),
    "classes": ("classes", {"maxiter": 10}, (1.0, 0.2, 0.2)),
    "rows of the Jacobian": ("wide", {"maxiter": 8}, None),
    "more rows than unknowns": ("medium", {"maxiter": 8}, None),
    "blocks, Krylov": (
        "blocks",
        {"maxiter": 5, "without": ["newton", "gauss-newton"]},
        (1.0, 1.0, 1.0, False),
    ),
    "blocks, samples": ("blocks", {"maxiter": 6}, (0.7, 0.3, 0.3)),
    "blocks, more rows than unknowns": ("wide blocks", {"maxiter": 8}, None),
    "blocks, fewer rows": ("two wide blocks", {"maxiter": 8}, None),
    "blocks, matrix": ("linear blocks", {"maxiter": 8}, None),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_end_where_that_of_one_process_does(ranks, name):
    kind, options, sizes = RUNS[name]
    alone = cases.problem(kind)
    expected = cases.run(alone, options, cases.subsets_of(alone, sizes))
    first, *others = ranks(cases.run_in_group, kind, options, sizes)
    assert abs(first["fun"] - expected["fun"]) <= 1e-8 * abs(expected["fun"])
    assert (first["status"], first["nit"]) == (expected["status"], expected["nit"])
    for other in others:
        np.testing.assert_array_equal(other["x"], first["x"])
        assert other["fun"] == first["fun"]


@pytest.mark.parametrize("method", ["hf", "L-BFGS-B"])
def test_other_methods_too(two, method):
    expected = by_method(cases.problem(), method)
    for found in two(by_method_in_group, method):
        assert abs(found - expected) <= 1e-8 * expected


def by_method(problem, method):
    given = {"rng": 0} if method == "hf" else {}
    return ksdmin.minimize(problem, method=method, options={"maxiter": 5}, **given).fun


def by_method_in_group(rank, size, method):
    return by_method(cases.grouped("net", rank, size), method)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_distributed_sampler_says_which_samples_a_rank_has(two, workers):
    expected = cases.problem(l2=0.0)
    for n, value in two(cases.shares_of_a_loader, workers):
        assert n == cases.N
        assert_close(value, expected.value(expected.x0), TIGHT)


def test_kronecker_factors_are_those_of_one_process(two):
    alone = cases.problem("own loss", precond="kronecker")
    expected = np.asarray(alone.factors(alone.x0).entries)
    (first, one), (second, other) = two(cases.factored_run)
    np.testing.assert_allclose(first, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(one["x"], other["x"])
