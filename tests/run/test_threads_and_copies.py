"""One problem in several threads, and copies of problems, results and solvers."""

import copy
import pickle
import threading

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der

import ksdmin
from tests.run import runs
from tests.run.comparison import assert_same

ways = pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))],
    ids=["copy", "pickle"],
)


@pytest.mark.parametrize(
    "name", ["differences", "samples", "net", "epochs", "jax_function", "residuals"]
)
def test_one_problem_in_several_threads(name):
    arguments = runs.ALL[name]()
    alone, results = ksdmin.minimize(**arguments), []
    threads = [
        threading.Thread(target=lambda: results.append(ksdmin.minimize(**arguments)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    for res in results:
        assert_same(res, alone)


def test_a_run_within_a_run():
    def fun(x):
        inner = ksdmin.minimize(lambda u: (u[0] - x[0]) ** 2, [0.0], jac=lambda u: 2 * (u - x[0]))
        return rosen(x) + inner.fun

    res = ksdmin.minimize(fun, [-1.2, 1.0], jac=rosen_der)
    assert res.success
    np.testing.assert_allclose(res.x, 1, atol=1e-4)


@ways
@pytest.mark.parametrize("name", ["plain", "net", "bounded"])
def test_a_solver_that_was_copied_goes_on(copied, name):
    def solver():
        if name == "net":
            return ksdmin.Solver(**runs.net())
        return ksdmin.Solver(
            rosen, runs.X0, jac=rosen_der, bounds=[(-2, 1.5)] * 4 if name == "bounded" else None
        )

    one = solver()
    next(one)
    other = copied(one)
    for each in (one, other):
        for _ in each:
            pass
    assert_same(other.result(), one.result())


@ways
def test_results_and_options(copied):
    res = ksdmin.minimize(rosen, runs.X0, jac=rosen_der)
    assert_same(copied(res), res)
    assert copied(ksdmin.Options(gtol=1e-3)) == ksdmin.Options(gtol=1e-3)
    assert copied(ksdmin.PAPER) == ksdmin.PAPER
    assert copied(ksdmin.ksd) is ksdmin.ksd
