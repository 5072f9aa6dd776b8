"""The example with a pool: the run is the same however many workers there are."""

import numpy as np
import pytest

from examples import pool_of_workers


def shuffled(function, arguments):
    """A pool that begins with the last task, and returns the results in order."""
    results = {i: function(*arguments[i]) for i in reversed(range(len(arguments)))}
    return [results[i] for i in range(len(arguments))]


def test_the_order_of_evaluation_does_not_matter():
    alone, other = map(pool_of_workers.minimized, (pool_of_workers.in_this_process, shuffled))
    assert alone.success
    np.testing.assert_array_equal(alone.x, other.x)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "run"),
    [("joblib", pool_of_workers.with_joblib), ("dask.distributed", pool_of_workers.with_dask)],
)
def test_pools_give_the_same_bits(library, run):
    pytest.importorskip(library)
    alone = pool_of_workers.minimized(pool_of_workers.in_this_process)
    np.testing.assert_array_equal(run(2).x, alone.x)
