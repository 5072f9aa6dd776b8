"""Vectors that are split over processes: the same numbers and runs as in one process."""

import numpy as np
import pytest
import torch

import ksdmin
from ksdmin._adapters.torch.distributed.split import Slices
from ksdmin._problem.arrays import Space
from ksdmin._problem.counting import Counts
from tests.adapters.torch.distributed import cases, split_cases
from tests.adapters.torch.distributed.ranks import Ranks
from tests.adapters.torch.distributed.test_communication import iterations
from tests.adapters.torch.distributed.test_quantities import TIGHT, assert_close

ITEMSIZE = 8
N = cases.problem().x0.numel()  # an odd number: slices differ in length


@pytest.mark.parametrize(("n", "size"), [(10, 2), (11, 2), (43, 4), (4, 4), (7, 5)])
def test_slices_cover_a_vector_and_padding_is_taken_out_again(n, size):
    u = torch.arange(n)
    slices = [Slices(n, rank, size) for rank in range(size)]
    assert torch.equal(torch.cat([u[each.own] for each in slices]), u)
    padded = slices[0].pad(u)
    assert len(padded) == slices[0].padded == size * slices[0].longest
    assert torch.equal(slices[0].unpad(padded), u)
    for each, piece in zip(slices, padded.reshape(size, -1), strict=True):
        assert torch.equal(piece[: each.own.stop - each.own.start], u[each.own])


def test_fewer_unknowns_than_processes_are_refused():
    with pytest.raises(ValueError, match="split: 3 unknowns cannot be split over 4 processes"):
        Slices(3, 0, 4)


def test_the_algebra_is_that_of_whole_vectors(ranks):
    expected = split_cases.of_space(Space(torch.zeros(N).double()), N)
    first, *others = ranks(split_cases.space_in_group)
    assert np.isnan([first.pop("broken"), expected.pop("broken")]).all()
    lengths = [found.pop("length") for found in (first, *others)]
    assert sum(lengths) == N
    assert max(lengths) - min(lengths) <= 1
    assert first.pop("rows") == lengths[0]
    for name, value in first.items():
        assert_close(value, expected[name], TIGHT)
        for other in others:
            np.testing.assert_array_equal(other[name], value)


@pytest.mark.parametrize("kind", ["net", "weighted", "blocks"])
def test_every_quantity_is_that_of_one_process(ranks, kind):
    problem = split_cases.alone(kind).counting(Counts())
    first, *others = ranks(split_cases.quantities_in_group, kind)
    for number, idx in enumerate(split_cases.sets(kind)):
        expected = split_cases.quantities(problem, Space(problem.x0), idx)
        for name, value in expected.items():
            assert_close(first[number][name], value, TIGHT)
            for other in others:
                np.testing.assert_array_equal(other[number][name], first[number][name])


KRYLOV = {"maxiter": 8, "without": ["newton", "gauss-newton"]}
RUNS = {
    "whole": (
        "net",
        {"maxiter": 25, "without": ["newton", "gauss-newton"]},
        (1.0, 1.0, 1.0, False),
        {},
    ),
    "samples": ("net", {"maxiter": 10, "without": ["newton", "gauss-newton"]}, (0.6, 0.3, 0.3), {}),
    "linear": ("linear", {"without": ["newton", "gauss-newton"]}, (0.5, 0.1, 0.1), {}),
    "directions adjoined": ("net", KRYLOV | {"pairs": 0}, (1.0, 0.3, 0.3), {}),
    "memory": ("net", KRYLOV | {"memory_budget": 20 * ITEMSIZE * N}, (1.0, 0.3, 0.3), {}),
    "blocks": (
        "blocks",
        {"maxiter": 10, "without": ["newton", "gauss-newton"]},
        (0.7, 0.3, 0.3),
        {},
    ),
    "hf": ("net", {"maxiter": 5}, None, {"method": "hf"}),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_end_where_that_of_one_process_does(ranks, name):
    kind, options, sizes, more = RUNS[name]
    if name == "memory":  # of each process, which has a part of each vector
        alone = {**options, "memory_budget": ranks.size * options["memory_budget"]}
    else:
        alone = options
    expected = split_cases.run(split_cases.alone(kind), kind, alone, sizes, **more)
    first, *others = ranks(split_cases.run_in_group, kind, options, sizes, more)
    assert abs(first["fun"] - expected["fun"]) <= 1e-8 * abs(expected["fun"])
    assert (first["status"], first["nit"]) == (expected["status"], expected["nit"])
    assert first["x"].shape == expected["x"].shape
    for other in others:
        np.testing.assert_array_equal(other["x"], first["x"])
        np.testing.assert_array_equal(
            other["history"]["reduced_bytes"], first["history"]["reduced_bytes"]
        )


def test_payloads_are_those_of_the_docs(ranks):
    n, found = ranks(split_cases.payloads)[0]
    longest = -(-n // ranks.size)
    gathered, scattered = ITEMSIZE * longest, ITEMSIZE * longest * ranks.size
    assert found == {
        "value": (2, gathered + 16),
        "gradient": (3, gathered + 16 + scattered),
        "diagonal": (4, gathered + 16 + 2 * scattered),
        "product": (3, gathered + scattered + 2 * ITEMSIZE),
        "inner": (1, 5 * ITEMSIZE),
        "max_abs": (1, 16),
    }


def test_what_an_iteration_sends_is_that_of_the_docs(two):
    """On samples, with a gradient and a diagonal; but for the sums of a few numbers."""
    longest = -(-N // 2)
    gathered, scattered = ITEMSIZE * longest, ITEMSIZE * longest * 2
    outcome = two(split_cases.run_without_small_sums, (0.6, 0.2, 0.2))[0]
    for _, spent in iterations(outcome):
        inner, values = spent["njev"] - 1, spent["nfev"] - spent["njev"]
        expected = (gathered + scattered + 2 * ITEMSIZE) * spent["nhev"]
        expected += (gathered + scattered + 16) * inner
        expected += gathered + 16 + 2 * scattered  # gradient and diagonal
        expected += gathered  # the point of the products
        expected += (gathered + 16) * values
        assert spent["reduced_bytes"] == expected
        assert inner >= 1


def test_each_process_keeps_slices_only(two):
    for length, kept in two(split_cases.kept_lengths):
        assert length in (N // 2, N // 2 + 1)
        assert kept == {length}


def test_a_step_is_a_function_of_the_state(two):
    for (x, counts), (again, counts_again) in two(split_cases.replayed):
        np.testing.assert_array_equal(again, x)
        assert counts == counts_again


def test_a_saved_run_goes_on_split_or_not_and_in_one_process(two, tmp_path):
    sets, path = (1.0, 0.3, 0.3), str(tmp_path / "run.ksd")
    options = KRYLOV | {"maxiter": 4, "checkpoint": path, "checkpoint_every": 1}
    subsets = ksdmin.Subsets(cases.N, *sets)
    expected = cases.run(cases.problem(), KRYLOV, subsets)["fun"]
    first = two(split_cases.run_in_group, "net", options, sets, {})[0]
    solver = ksdmin.Solver.load(path, cases.problem(), subsets=subsets)
    np.testing.assert_array_equal(np.asarray(solver._loop.state.here.x), first["x"])
    found = [cases.resumed_run_alone(path, {"maxiter": 8})]
    found += two(split_cases.resumed, path, True, {"maxiter": 8})
    found += two(split_cases.resumed, path, False, {"maxiter": 8})
    for value, nit in found:
        assert nit == 8
        assert abs(value - expected) <= 1e-8 * expected


def test_a_callback_gets_whole_vectors(two):
    for seen in two(split_cases.with_callback, True):
        assert seen == [(N, N)] * 3


def test_a_callback_has_to_be_in_all_processes(two):
    for outcome in two.outcomes(split_cases.with_callback, False):
        assert "whether there is a callback must be the same in all processes" in str(outcome)


def test_bounds_are_refused(two):
    for outcome in two.outcomes(split_cases.with_bounds):
        assert "bounds: not where the vectors of a run are split" in str(outcome)


@pytest.mark.parametrize("fails_at", [1, 7, 40])
def test_a_rank_that_raises_ends_all(two, fails_at):
    first, second = two.outcomes(split_cases.failing_run, fails_at)
    assert "rank 1 raised ValueError: the dog ate the batch" in str(first)
    assert str(second).startswith("ValueError: the dog ate the batch")


@pytest.mark.slow
def test_a_rank_that_is_killed_ends_the_other_and_one_process_goes_on(tmp_path):
    path = tmp_path / "run.ksd"
    options = {"maxiter": 8, "checkpoint": str(path), "checkpoint_every": 1}
    with Ranks(2, tmp_path, timeout=10.0) as ranks:
        ranks.start(cases.killed_run, options, 1, {"split": True})
        message, iterates = ranks.received(0)
    assert "cannot reach the other processes" in message
    subsets = ksdmin.Subsets(cases.N, 1.0, 0.3, 0.3)
    state = ksdmin.Solver.load(path, cases.problem(), subsets=subsets)._loop.state
    assert state.record.iteration == 3
    np.testing.assert_array_equal(np.asarray(state.here.x), iterates[2])


@pytest.mark.parametrize(
    ("split", "budget", "expected"),
    [("auto", None, False), ("auto", 60 * ITEMSIZE * N / 2, True), (False, 1e4, False)],
)
def test_whether_vectors_are_split(two, split, budget, expected):
    """By default where 65 vectors take more than twice the budget."""
    assert two(split_cases.is_split, split, budget) == [expected, expected]


def test_other_words_and_no_group_are_refused():
    with pytest.raises(ValueError, match="split='yes': expected True, False or \"auto\""):
        cases.problem(split="yes")
    with pytest.raises(ValueError, match=r"split=True.*goes with process_group="):
        cases.problem(split=True)
