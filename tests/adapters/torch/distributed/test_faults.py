"""A process that raises, dies, meets NaN, is interrupted or out of time: all end, and agree."""

import numpy as np
import pytest

import ksdmin
from ksdmin import Status
from tests.adapters.torch.distributed import cases
from tests.adapters.torch.distributed.ranks import Failed, Ranks


@pytest.mark.parametrize("fails_at", [1, 5, 34])
def test_a_rank_that_raises_ends_all_with_its_reason(two, fails_at):
    """Wherever it is: in a gradient, a product or the search. The group can be used again."""
    first, last = two.outcomes(cases.failing_run, fails_at, {"maxiter": 30})
    assert str(last) == "ValueError: the dog ate the batch"
    assert "RuntimeError: rank 0 of 2 ends, as rank 1 raised ValueError: the dog ate the" in str(
        first
    )
    assert isinstance(first, Failed)


def test_an_iteration_that_failed_can_be_tried_again(two):
    subsets = cases.some_sets()
    expected = cases.run(cases.problem(l2=0.0), {"maxiter": 4}, subsets)["fun"]
    for failed, value in two(cases.retried_run, 15):
        assert failed
        assert abs(value - expected) <= 1e-8 * expected


def test_nan_of_one_rank_is_met_by_all(two):
    for found in two(cases.nan_run):
        assert found["status"] == Status.NOT_FINITE
        assert "fun(x0) is nan" in found["message"]


@pytest.mark.parametrize(
    ("how", "status"), [("stop", Status.CALLBACK), ("signal", Status.INTERRUPTED)]
)
def test_any_rank_may_end_the_run(two, how, status):
    first, second = two(cases.stopped_run, how)
    assert first["status"] == second["status"] == status
    assert first["nit"] == second["nit"] == 3
    np.testing.assert_array_equal(first["x"], second["x"])


def test_an_exception_in_a_callback_of_one_rank(two):
    first, second = two.outcomes(cases.stopped_run, "error")
    assert "rank 1 raised ZeroDivisionError: by zero" in str(first)
    assert str(second) == "ZeroDivisionError: by zero"


@pytest.mark.parametrize(
    ("late_rank", "status", "nit"), [(0, Status.MAXTIME, 3), (1, Status.MAXITER, 6)]
)
def test_maxtime_is_by_the_clock_of_the_first_rank(two, late_rank, status, nit):
    first, second = two(cases.timed_run, late_rank)
    assert first["status"] == second["status"] == status
    assert nit <= first["nit"] == second["nit"] <= nit + 1


@pytest.mark.parametrize("what", ["x0", "rng"])
def test_the_first_rank_says_where_a_run_starts_and_what_it_draws(two, what):
    first, second = two(cases.with_other_arguments, what)
    np.testing.assert_array_equal(first, second)


REFUSED = [
    (cases.with_other_arguments, "maxiter", "option maxiter must be the same in all processes of "
     "the group: 4 on rank 0, 5 on"),
    (cases.with_other_models, "shape", "the shapes of its parameters must be the same in all"),
    (cases.with_other_models, "weights", "the weights of the blocks of residuals must be the same"),
    (cases.wrapped_model, False, "DistributedDataParallel without process_group="),
]  # fmt: skip


@pytest.mark.parametrize(("function", "what", "text"), REFUSED)
def test_what_is_refused_by_all(two, function, what, text):
    for outcome in two.outcomes(function, what):
        assert text in str(outcome)


def test_the_parameters_of_the_first_rank_count(two):
    first, second = two(cases.with_other_models, "values")
    np.testing.assert_array_equal(first, second)


# Saved runs

OPTIONS = {"maxiter": 8, "checkpoint_every": 1}


def with_file(path):
    return {**OPTIONS, "checkpoint": str(path)}


def loaded(path):
    subsets = cases.some_sets()
    return ksdmin.Solver.load(path, cases.problem(), subsets=subsets)


def test_one_process_goes_on_with_the_run_of_two_and_two_with_that_of_one(two, tmp_path):
    sets, short = (1.0, 0.3, 0.3), {"maxiter": 4}
    expected = cases.run(cases.problem(), OPTIONS, ksdmin.Subsets(cases.N, *sets))["fun"]
    of_two, of_one = tmp_path / "two.ksd", tmp_path / "one.ksd"
    first = two(cases.run_in_group, "net", with_file(of_two) | short, sets)[0]
    state = loaded(of_two)._loop.state
    np.testing.assert_array_equal(np.asarray(state.here.x), first["x"])
    cases.run(cases.problem(), with_file(of_one) | short, ksdmin.Subsets(cases.N, *sets))
    found = [cases.resumed_run_alone(of_two, {"maxiter": 8})]
    found += two(cases.resumed_run, str(of_one), {"maxiter": 8})
    for value, nit in found:
        assert nit == 8
        assert abs(value - expected) <= 1e-8 * expected


def test_a_failed_run_is_saved(two, tmp_path):
    path = tmp_path / "run.ksd"
    two.outcomes(cases.failing_run, 60, with_file(path))
    problem = ksdmin.from_torch(cases.Fragile(), cases.loss("net"), cases.samples())
    subsets = cases.some_sets()
    assert ksdmin.resume(path, problem, subsets=subsets).nit == OPTIONS["maxiter"]


def test_a_solver_is_saved_by_the_first_rank_and_loaded_by_all(two, tmp_path):
    for before, after in two(cases.saved_by_solver, str(tmp_path / "run.ksd")):
        np.testing.assert_array_equal(before, after)


def test_a_file_that_is_there_is_refused_by_all(two, tmp_path):
    path = tmp_path / "run.ksd"
    path.write_text("mine")
    first, second = two.outcomes(cases.run_in_group, "net", with_file(path))
    assert "this is not a checkpoint of ksdmin" in str(first)
    assert "rank 0 raised CheckpointError" in str(second)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("victim", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_a_rank_that_is_killed_ends_the_other_and_one_process_goes_on(tmp_path, victim):
    path = tmp_path / "run.ksd"
    with Ranks(2, tmp_path, timeout=10.0) as ranks:
        ranks.start(cases.killed_run, with_file(path), victim)
        message, iterates = ranks.received(1 - victim)
    assert "cannot reach the other processes" in message
    assert "ksdmin.resume" in message
    solver = loaded(path)
    state = solver._loop.state
    assert state.record.iteration in (3, 4)
    np.testing.assert_array_equal(np.asarray(state.here.x), iterates[state.record.iteration - 1])
    assert cases.resumed_run_alone(path, {})[1] == OPTIONS["maxiter"]
