"""A Solver makes the iterations of minimize, one at a time."""

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess_prod

import ksdmin
from ksdmin import Status
from tests.run import runs
from tests.run.comparison import assert_same

X0 = np.array([-1.2, 1.0, 0.7])
methods = pytest.mark.parametrize("method", ["ksd", "hf"])


def rosenbrock(**kwargs):
    return {"fun": rosen, "x0": X0, "jac": rosen_der, "hessp": rosen_hess_prod, **kwargs}


def a_sum(**kwargs):
    return runs.samples() | kwargs


@methods
@pytest.mark.parametrize("problem", [rosenbrock, a_sum])
def test_its_iterations_are_those_of_minimize(method, problem):
    """And a result in between changes nothing."""
    solver, seen, values = ksdmin.Solver(**problem(method=method)), [], []
    before = solver.result()
    assert (before.status, before.success, before.nit) == (Status.RUNNING, False, 0)
    for iteration in solver:
        seen.append(iteration)
        values.append(solver.result().fun)
    res = ksdmin.minimize(**problem(method=method))
    assert_same(solver.result(), res)
    assert min(values) < before.fun
    assert [iteration.nit for iteration in seen] == list(range(1, res.nit + 1))
    assert [iteration.fun for iteration in seen] == res.history["value"][1:].tolist()
    assert seen[0].record.gradient_norm == seen[0].gradient_norm
    assert solver.status == res.status
    assert list(solver) == []


def test_an_iteration_that_failed_can_be_tried_again():
    calls = []

    def fun(x):
        calls.append(x)
        if len(calls) == 9:
            raise OSError("the file is not there")
        return rosen(x)

    solver = ksdmin.Solver(**rosenbrock(fun=fun))
    with pytest.raises(OSError, match="not there") as caught:
        for _ in solver:
            pass
    assert caught.value.ksdmin_result.status == Status.FAILED
    assert solver.result().status == Status.FAILED
    assert solver.result().fun < rosen(X0)
    for _ in solver:
        pass
    res = ksdmin.minimize(**rosenbrock())
    assert solver.result().success
    np.testing.assert_array_equal(solver.result().x, res.x)


def test_the_callback_may_end_it():
    def callback(intermediate_result):
        if intermediate_result.nit == 3:
            raise StopIteration

    solver = ksdmin.Solver(**rosenbrock(callback=callback))
    assert len(list(solver)) == 3
    assert solver.status == Status.CALLBACK


def test_what_is_yielded_is_the_callers_own():
    solver = ksdmin.Solver(**rosenbrock())
    for iteration in solver:
        iteration.x[:] = np.nan
        iteration.jac[:] = np.nan
    assert_same(solver.result(), ksdmin.minimize(**rosenbrock()))


def test_methods_of_scipy_are_refused():
    with pytest.raises(ValueError, match=r"'BFGS': a Solver takes 'ksd' or 'hf'"):
        ksdmin.Solver(**rosenbrock(method="BFGS"))


def test_a_stop_iteration_of_user_code_is_not_the_end():
    values = iter([1.0])
    solver = ksdmin.Solver(**rosenbrock(fun=lambda x: next(values)))
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(solver)


def test_a_checkpoint_is_not_written_again_after_the_end(tmp_path):
    path = tmp_path / "run.ksd"
    solver = ksdmin.Solver(**rosenbrock(), options={"checkpoint": path, "maxiter": 3})
    assert len(list(solver)) == 3
    path.unlink()
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(solver)
    assert not path.exists()
