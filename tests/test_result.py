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


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("grad", "it is 'jac'"),
        ("hist", r"did you mean 'history'\?"),
        ("sucess", r"did you mean 'success'\?"),
    ],
)
def test_a_field_that_is_not_there_is_told_what_it_may_mean(name, told):
    res = ksdmin.minimize(rosen, [1.0, 1.0], jac=rosen_der)
    with pytest.raises(AttributeError, match=rf"the result has no '{name}' \({told}\)"):
        getattr(res, name)
