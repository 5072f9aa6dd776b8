"""When a run ends: time, a target, validation, Ctrl-C; and what is kept of its iterates."""

import os
import signal

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess_prod

import ksdmin
from ksdmin import Status
from ksdmin._run import evaluator
from tests.run import runs

X0 = np.tile([-1.2, 1.0], 10)
methods = pytest.mark.parametrize("method", ["ksd", "hf"])


# Time


class Clock:
    """Every call of user code takes a second."""

    def __init__(self):
        self.now, self.begun = 0.0, []

    def perf_counter(self):
        return self.now

    def ticking(self, function):
        def call(*args):
            self.begun.append(self.now)
            self.now += 1.0
            return function(*args)

        return call


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(evaluator, "time", clock)
    return clock


DERIVATIVES = {
    "all": {"jac": rosen_der, "hessp": rosen_hess_prod},
    "gradient": {"jac": rosen_der},
    "none": {},
}


@methods
@pytest.mark.parametrize("given", DERIVATIVES)
@pytest.mark.parametrize("maxtime", [1, 2, 5, 17, 30, 55])
def test_nothing_begins_when_time_is_up(clock, method, given, maxtime):
    """But for the value and the gradient at x0, and the gradient of the result."""
    functions = {name: clock.ticking(f) for name, f in DERIVATIVES[given].items()}
    res = ksdmin.minimize(
        clock.ticking(rosen), X0, method=method, options={"maxtime": maxtime}, **functions
    )
    late = [begun for begun in clock.begun if begun >= maxtime]
    assert len(late) <= 1
    assert res.status == Status.MAXTIME
    assert not res.success
    assert res.fun == rosen(res.x)
    assert res.fun <= rosen(X0)
    assert res.jac is None or np.array_equal(res.jac, rosen_der(res.x)) or given == "none"


def test_the_best_point_of_a_step_that_was_given_up_is_returned(clock):
    res = ksdmin.minimize(clock.ticking(rosen), X0, options={"maxtime": 60})
    whole = ksdmin.minimize(rosen, X0, options={"maxfun": 60})
    assert res.nit <= 2
    assert res.fun < rosen(X0)
    assert res.fun <= whole.fun * 1.5


@methods
def test_a_step_on_samples_is_judged(clock, method):
    arguments = runs.samples()
    problem = arguments["fun"]
    fun = clock.ticking(problem._fun)
    problem = ksdmin.as_problem(fun, jac=problem._jac, subsets=problem.subsets)
    for maxtime in (3, 6, 9, 12):
        clock.now, clock.begun = 0.0, []
        res = ksdmin.minimize(
            problem, np.zeros(4), method=method, rng=0, options={"maxtime": maxtime}
        )
        assert res.status == Status.MAXTIME
        assert len([begun for begun in clock.begun if begun >= maxtime]) <= 4
    assert res.nit > 0


def test_more_time_goes_on_where_it_was(clock, tmp_path):
    whole = ksdmin.minimize(rosen, X0, jac=rosen_der)
    path = tmp_path / "run.ksd"
    problem = ksdmin.as_problem(clock.ticking(rosen), jac=clock.ticking(rosen_der))
    res = ksdmin.minimize(problem, X0, options={"maxtime": 10, "checkpoint": path})
    assert res.status == Status.MAXTIME
    for more in (20, 30):
        res = ksdmin.resume(path, problem, options={"maxtime": more})
        assert res.status == Status.MAXTIME
    res = ksdmin.resume(path, problem, options={"maxtime": None})
    np.testing.assert_array_equal(res.x, whole.x)
    assert res.nfev == whole.nfev


# A target


@methods
def test_a_target_value(method):
    res = ksdmin.minimize(
        rosen, X0, method=method, jac=rosen_der, hessp=rosen_hess_prod, options={"fmin": 30.0}
    )
    assert res.status == Status.TARGET
    assert res.success
    assert 1e-3 < res.fun <= 30.0
    assert res.message.endswith(f"fun {res.fun:.6g} <= fmin 30.")
    assert res.fun == rosen(res.x)


# Validation


def test_the_best_point_by_validation_is_kept():
    seen = []

    def validation(x):
        seen.append(x.copy())
        x[:] = np.nan  # it is the caller's own
        return abs(len(seen) - 4)

    res = ksdmin.minimize(rosen, X0, jac=rosen_der, options={"validation": validation})
    assert res.success
    np.testing.assert_array_equal(res.validation.x, seen[3])
    assert (res.validation.fun, res.validation.nit) == (0, 4)
    assert len(seen) == res.nit
    assert not res.validation.is_average


def test_patience():
    values = iter([5.0, 3.0, np.nan, 3.5, 3.0, 1.0])
    options = {"validation": lambda x: next(values), "patience": 3}
    res = ksdmin.minimize(rosen, X0, jac=rosen_der, options=options)
    assert res.status == Status.VALIDATION
    assert not res.success
    assert (res.nit, res.validation.nit, res.validation.fun) == (5, 2, 3.0)


def test_a_saved_run_needs_its_validation_again(tmp_path):
    path, problem = tmp_path / "run.ksd", ksdmin.as_problem(rosen, jac=rosen_der)
    options = {"validation": rosen, "maxiter": 3, "checkpoint": path}
    ksdmin.minimize(problem, X0, options=options)
    with pytest.raises(ValueError, match="has a validation function"):
        ksdmin.resume(path, problem)


def test_a_validation_that_returns_no_number():
    with pytest.raises(ValueError, match="validation returned"):
        ksdmin.minimize(rosen, X0, jac=rosen_der, options={"validation": lambda x: None})


# The average


@pytest.mark.parametrize("name", ["rosenbrock", "net", "jax_function"])
def test_the_average_of_the_iterates(name):
    arguments = runs.ALL[name]()
    options = {**arguments.get("options", {}), "return_all": True}
    plain = ksdmin.minimize(**{**arguments, "options": options})
    res = ksdmin.minimize(**{**runs.ALL[name](), "options": {**options, "average": 0.5}})
    np.testing.assert_array_equal(np.asarray(res.x), np.asarray(plain.x))  # the run is the same
    iterates = [np.asarray(x, dtype=np.float64) for x in res.allvecs]
    wanted = iterates[2]
    for x in iterates[3:]:
        wanted = 0.5 * wanted + 0.5 * x
    np.testing.assert_allclose(np.asarray(res.average.x), wanted, rtol=1e-5, atol=1e-6)
    assert type(res.average.x) is type(res.x)
    value = arguments["fun"].value(res.average.x, slice(None))
    assert res.average.fun == pytest.approx(float(value), rel=1e-6)


def test_the_average_is_validated_too():
    target = ksdmin.minimize(rosen, X0, jac=rosen_der, options={"average": 0.5, "maxiter": 8})
    res = ksdmin.minimize(
        rosen, X0, jac=rosen_der,
        options={"average": 0.5, "validation": lambda x: np.abs(x - target.average.x).max()},
    )  # fmt: skip
    assert res.validation.is_average
    assert res.validation.nit == 8
    assert res.validation.fun == 0


# The history


def test_a_thinned_history():
    whole = ksdmin.minimize(rosen, X0, jac=rosen_der)
    assert whole.nit > 12
    for most in (2, 3, 7, 1000):
        res = ksdmin.minimize(rosen, X0, jac=rosen_der, options={"history": most})
        np.testing.assert_array_equal(res.x, whole.x)
        assert len(res.history) <= most
        iterations = res.history["iteration"].tolist()
        assert iterations[0] == 0
        assert iterations[-1] == res.nit
        assert len(set(np.diff(iterations[:-1]))) <= 1
        assert len(res.history) > most / 2 - 1 or most == 1000


# Ctrl-C


def pressing(times, calls):
    """rosen, during whose 21st call Ctrl-C is pressed so many times."""

    def fun(x):
        calls.append("begun")
        if len(calls) == 41:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
        calls.append("finished")
        return rosen(x)

    return fun


@pytest.mark.parametrize(("times", "finished"), [(1, 21), (2, 20)], ids=["once", "twice"])
def test_ctrl_c_once_finishes_the_evaluation_and_twice_ends_at_once(times, finished):
    calls = []
    res = ksdmin.minimize(pressing(times, calls), X0, jac=rosen_der)
    assert res.status == Status.INTERRUPTED
    assert (calls.count("begun"), calls.count("finished")) == (21, finished)
    assert res.fun == rosen(res.x) < rosen(X0)
    assert times == 2 or np.array_equal(res.jac, rosen_der(res.x))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_in_a_run_within_a_run():
    inner = []

    def fun(x):
        inner.append(ksdmin.minimize(pressing(1, calls), X0, jac=rosen_der).status)
        return rosen(x)

    calls = []
    res = ksdmin.minimize(fun, X0, jac=rosen_der)
    assert (res.status, inner) == (Status.INTERRUPTED, [Status.INTERRUPTED])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
