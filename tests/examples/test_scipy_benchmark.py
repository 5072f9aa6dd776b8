"""The comparison with SciPy's methods: what is counted, and when a run ends."""

import signal

import numpy as np
import pytest

from examples.benchmarks.comparison import pooled_runs, problem_sets, scores, solvers
from examples.benchmarks.comparison.counted_functions import CountedFunctions
from examples.harness.recorder import Spent

BUDGET = {"work": 20_000, "seconds": 60.0}


@pytest.fixture
def problem():
    return problem_sets.make("classic", "rosenbrock")


@pytest.mark.parametrize("method", ["ksd", "ksd-gradients", "L-BFGS-B-tight", "Newton-CG-tight"])
def test_work_counts_every_call_and_products_twice(problem, method):
    counted = CountedFunctions(problem, **BUDGET)
    res = solvers.run(method, counted, {})
    found = counted.end() | counted.final(res.x)
    assert found["work"] == found["nf"] + found["ng"] + 2 * found["nh"]
    assert 0 < found["gradient_work"] <= found["work"]
    assert 0 <= found["inside"] <= found["seconds"]
    assert found["g"] <= problem_sets.TARGET * max(1, found["g0"])
    works, values = zip(*found["trace"], strict=True)
    assert sorted(works) == list(works)
    assert sorted(values, reverse=True) == list(values)
    assert values[-1] == found["best"] <= found["f"] + 1e-12


def test_a_run_ends_when_its_budget_is_spent(problem):
    counted = CountedFunctions(problem, work=5, seconds=60.0)
    with pytest.raises(Spent):
        solvers.run("BFGS", counted, {})
    assert counted.work.passes == 5


@pytest.fixture
def worker():
    """What a worker sets for its process is undone."""
    before = signal.getsignal(signal.SIGALRM)
    with np.errstate():
        yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("worker")
def test_runs_are_kept_and_scored(tmp_path):
    name, run = pooled_runs.one(("classic", "rosenbrock", "ksd", {}, BUDGET))
    head = {"tag": "ksd", "method": "ksd", "options": {}, "budget": BUDGET, "environment": {}}
    pooled_runs.cached("classic", "ksd", tmp_path).replace([run], head)
    pooled_runs.remember_best("classic", {name: run}, tmp_path)
    loaded = scores.load("classic", ["ksd"], tmp_path)
    assert loaded.names == ["rosenbrock"]
    kept = loaded.runs["ksd"]["rosenbrock"]
    assert kept["success"]
    assert 0 < kept["value_work"] <= kept["work"]
    assert not scores.false_success(kept, loaded.about["rosenbrock"])
