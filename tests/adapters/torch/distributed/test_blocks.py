"""Blocks of residuals whose samples are spread over processes: as in one process."""

import numpy as np
import pytest

import ksdmin
from ksdmin._adapters.blocks import BlockProblem
from tests.adapters.torch.distributed import block_cases, cases
from tests.adapters.torch.distributed.test_communication import iterations
from tests.adapters.torch.distributed.test_quantities import TIGHT, assert_close

BLOCKS, ITEMSIZE = 3, 8


@pytest.mark.parametrize("arguments", [{}, {"l2": 0.0, "chunk_size": 7}, {"width": 40}])
def test_every_quantity_is_that_of_one_process(ranks, arguments):
    expected = cases.quantities(block_cases.problem(**arguments), block_cases.sets)
    first, *others = ranks(block_cases.quantities_in_group, arguments)
    assert first.keys() == expected.keys()
    assert (0, "rows") in expected
    for key, value in expected.items():
        assert_close(first[key], value, TIGHT)
        for other in others:
            np.testing.assert_array_equal(other[key], first[key])


RUNS = {
    "whole, Krylov": (
        {"maxiter": 5, "without": ["newton", "gauss-newton"]},
        (1.0, 1.0, 1.0, False),
        {},
    ),
    "samples": ({"maxiter": 6}, (0.7, 0.3, 0.3), {}),
    "rows, more than unknowns": ({"maxiter": 8}, None, {"width": 40}),
    "rows, fewer": ({"maxiter": 8}, None, {"width": 40, "count": 2}),
    "matrix": ({"maxiter": 8}, None, {"width": 0, "count": 2}),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_end_where_that_of_one_process_does(ranks, name):
    options, sizes, arguments = RUNS[name]
    expected = block_cases.run(block_cases.problem(**arguments), options, sizes)
    first, *others = ranks(block_cases.run_in_group, options, sizes, arguments)
    assert abs(first["fun"] - expected["fun"]) <= 1e-8 * abs(expected["fun"])
    assert (first["status"], first["nit"]) == (expected["status"], expected["nit"])
    for other in others:
        np.testing.assert_array_equal(other["x"], first["x"])


@pytest.mark.parametrize("sizes", [(0.6, 0.2, 0.2), (1.0, 1.0, 1.0, False)])
def test_payload_is_that_of_the_formula(two, sizes):
    """As that of one block, but that each of them has a value of its own."""
    options = {
        "maxiter": 2,
        "pairs": 0,
        "without": ["set_sizes", "forcing", "newton", "gauss-newton"],
    }
    n = block_cases.problem().x0.numel()
    for dim, spent in iterations(two(block_cases.run_in_group, options, sizes, {})[0]):
        inner, values = spent["njev"] - 1, spent["nfev"] - spent["njev"]
        numbers = 8 * (BLOCKS + 1)
        expected = numbers + 2 * ITEMSIZE * n + numbers * values
        expected += spent["nhev"] * ITEMSIZE * (n + 2) + inner * (numbers + 8 * dim)
        assert spent["reduced_bytes"] == expected
        assert spent["reductions"] == 2 + values + spent["nhev"] + inner


NET, LINEAR = {"width": 40}, {"width": 0, "count": 2}


def test_what_damped_and_exact_steps_send(two):
    """Rows for a net, the matrix for a linear model."""
    count, n = 2 * block_cases.POINTS + block_cases.EDGES + 4 * 40, size_of(NET)
    assert two(payload, "jacobian", NET)[0] == (3, 8 + ITEMSIZE * count * (n + 1))
    assert two(payload, "matrix", LINEAR)[0] == (2, 8 + ITEMSIZE * size_of(LINEAR) ** 2)


def size_of(arguments):
    return block_cases.problem(**arguments).x0.numel()


def payload(rank, size, verb, arguments):
    from ksdmin._problem.counting import Counts

    problem, counts = block_cases.grouped(rank, size, **arguments), Counts()
    getattr(problem.counting(counts), verb)(problem.x0, slice(None))
    return counts.reductions, counts.reduced_bytes


def test_the_matrix_of_linear_blocks_is_that_of_one_process(ranks):
    alone = block_cases.problem(**LINEAR)
    for found in ranks(matrix_in_group):
        assert_close(found, np.asarray(alone.matrix(alone.x0)), TIGHT)


def matrix_in_group(rank, size):
    problem = block_cases.grouped(rank, size, **LINEAR)
    return np.asarray(problem.matrix(problem.x0))


def test_a_saved_run_goes_on_in_one_process_and_in_several(two, tmp_path):
    path, sizes = str(tmp_path / "run.ksd"), (1.0, 0.3, 0.3)
    expected = block_cases.run(block_cases.problem(), {"maxiter": 6}, sizes)["fun"]
    for found in two(block_cases.saved_and_resumed, path):
        assert abs(found - expected) <= 1e-8 * expected
    subsets = ksdmin.Subsets(block_cases.N, *sizes)
    alone = ksdmin.resume(path, block_cases.problem(), options={"maxiter": 8}, subsets=subsets)
    assert alone.nit == 8


def test_weights_have_to_be_the_same(two):
    for outcome in two.outcomes(block_cases.with_other_weights):
        assert "the weights of the blocks of residuals must be the same" in str(outcome)


@pytest.mark.parametrize("fails_at", [1, 5, 24])
def test_a_rank_that_raises_ends_all(two, fails_at):
    first, second = two.outcomes(block_cases.failing, fails_at)
    assert "rank 1 raised ValueError: the dog ate the points" in str(first)
    assert str(second).startswith("ValueError: the dog ate the points")


def test_one_rank_has_the_problem_without_a_group(tmp_path):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/s", rank=0, world_size=1)
    try:
        problem = block_cases.grouped(0, 1)
        assert type(problem) is BlockProblem
        expected = block_cases.problem()
        assert problem.value(problem.x0) == expected.value(expected.x0)
    finally:
        dist.destroy_process_group()
