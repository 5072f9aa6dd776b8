"""What a run tells: statuses, the history, and whether the result is true."""

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess_prod

import ksdmin
from ksdmin import History, Status
from ksdmin._result import MESSAGES, Record

RECORD = Record(
    iteration=0, value=4.0, gradient_norm=1.0, step_norm=0.0, accepted=True, dim=0, size_A=None,
    size_B=1, size_C=1, inner_iterations=0, nfev=1, njev=1, nhev=0, passes=2.0, seconds=0.1,
)  # fmt: skip


def run(fun=rosen, jac=rosen_der, hessp=rosen_hess_prod, x0=(-1.2, 1.0), **kwargs):
    return ksdmin.minimize(fun, np.array(x0), jac=jac, hessp=hessp, **kwargs)


# Statuses


def test_each_status_has_a_message():
    assert set(MESSAGES) == set(Status)
    assert len(set(MESSAGES.values())) == len(Status)


def stop(x):
    raise StopIteration


linear = {"fun": lambda x: x.sum(), "jac": np.ones_like, "hessp": lambda x, p: 0 * p}
undefined = {"fun": lambda x: np.nan, "jac": lambda x: np.nan * x}
inexact = {"jac": lambda x: rosen_der(x) + 1e-3, "x0": (1.0, 1.0)}  # never zero where f is least


@pytest.mark.filterwarnings("ignore:jac contradicts fun")
@pytest.mark.parametrize(
    ("status", "kwargs"),
    [
        (Status.CONVERGED, {}),
        (Status.MAXITER, {"options": {"maxiter": 2}}),
        (Status.MAXITER, {"options": {"maxiter": 0}}),
        (Status.MAXFUN, {"options": {"maxfun": 5}}),
        (Status.MAXTIME, {"options": {"maxtime": 0.0}}),
        (Status.CALLBACK, {"callback": stop}),
        (Status.NOT_FINITE, undefined),
        (Status.NOT_FINITE, {"hessp": lambda x, p: np.nan * p}),
        (Status.UNBOUNDED, linear),
        (Status.PRECISION_LOSS, inexact),
    ],
)
def test_statuses(status, kwargs):
    res = run(**kwargs)
    assert res.status == status
    assert type(res.status) is int  # as SciPy's
    assert res.success is (status == Status.CONVERGED)
    assert res.message.startswith(MESSAGES[status])  # and the cause, where it is known


# The result


def test_counts_are_true():
    calls = dict.fromkeys(("nfev", "njev", "nhev"), 0)

    def counted(name, function):
        def wrapped(*args):
            calls[name] += 1
            return function(*args)

        return wrapped

    res = run(counted("nfev", rosen), counted("njev", rosen_der), counted("nhev", rosen_hess_prod))
    assert {name: res[name] for name in calls} == calls
    last = res.history[-1]
    assert {name: getattr(last, name) for name in calls} == calls
    assert last.passes == res.nfev + res.njev + 2 * res.nhev
    calls["nfev"] = 0
    res = run(counted("nfev", rosen), None, None, options={"maxiter": 3})  # differences count, too
    assert calls["nfev"] == res.nfev


# The history


def test_history_is_a_sequence_with_columns():
    later = Record(**{name: getattr(RECORD, name) for name in History.columns} | {"value": 1.5})
    history = History([RECORD, later])
    assert list(history) == [RECORD, later]
    assert history[-1] is later
    assert history[1:] == History([later])
    assert history["value"].tolist() == [4.0, 1.5]
    assert history != History([RECORD])
    assert history != [RECORD, later]
    assert repr(history) == "<History: 1 iterations, 4 -> 1.5>"
    assert repr(History()) == "<History: empty>"
    told = r"no column 'vlaue' \(did you mean 'value'\?\); there are iteration, value"
    with pytest.raises(KeyError, match=told):
        history["vlaue"]
    with pytest.raises(IndexError):
        history[2]
    with pytest.raises(TypeError, match="unhashable"):
        hash(history)


def test_the_gradient_is_told_its_name():
    res = ksdmin.minimize(rosen, [1.0, 1.0], jac=rosen_der)
    with pytest.raises(AttributeError, match=r"the result has no 'grad' \(it is 'jac'\)"):
        res.grad  # noqa: B018


@pytest.mark.parametrize(("name", "meant"), [("hist", "history"), ("sucess", "success")])
def test_a_misspelt_field_is_told_what_it_may_mean(name, meant):
    res = ksdmin.minimize(rosen, [1.0, 1.0], jac=rosen_der)
    told = rf"the result has no '{name}' \(did you mean '{meant}'\?\)"
    with pytest.raises(AttributeError, match=told):
        getattr(res, name)
