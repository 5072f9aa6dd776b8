"""The comparison with SciPy's methods: what is counted, and when a run ends."""

import pytest

from examples.benchmarks.comparison import problem_sets, solvers
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
