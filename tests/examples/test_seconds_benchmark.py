"""The benchmark of seconds: when a run ends, what is kept and shown."""

import numpy as np
import pytest

from examples.benchmarks.cheap_functions import families
from examples.benchmarks.comparison import seconds_tables, solvers, timed_runs
from examples.benchmarks.comparison.timed_functions import (
    TARGET,
    Reached,
    TimedFunctions,
)
from examples.harness.store import Store

# Other tests may have loaded jax, which warns of forks: those here compute with numpy only.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork")

ARWHEAD = timed_runs.Timing(timed_runs.CHEAP, "arwhead", 20)


@pytest.mark.parametrize("method", timed_runs.METHODS[timed_runs.CHEAP])
def test_a_run_ends_at_the_first_gradient_that_is_small_enough(method):
    functions, seen = TimedFunctions(families.make("arwhead", 20), 60.0), []
    gradient = functions.problem.gradient

    def watched(x):
        seen.append(np.abs(gradient(x)).max())
        return gradient(x)

    object.__setattr__(functions.problem, "gradient", watched)
    with pytest.raises(Reached):
        solvers.run(method, functions, timed_runs.options(method, functions.target))
    assert functions.reached
    assert functions.target == TARGET * seen[0]
    assert seen[-1] <= functions.target < min(seen[:-1])
    assert functions.end()["ng"] == len(seen)


def test_runs_are_kept_and_shown(tmp_path):
    store = Store(tmp_path / "runs.json", ("collection", "problem", "size", "method"))
    origin = {"hardware": "a machine", "date": "today", "commit": "abc"}
    for method in ("ksd", "L-BFGS-B-tight"):
        store.add(timed_runs.perform(ARWHEAD, method, limit=10.0) | origin)
    shown = seconds_tables.report(store.runs)
    assert "| arwhead | 20 | tuned | 0." in shown
    assert "| tuned | 1/1 |" in shown
    assert "Measured on a machine, today, abc." in shown
