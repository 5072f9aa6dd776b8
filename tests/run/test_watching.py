"""What one sees of a run: the log, the bar, the history as a table."""

import io
import logging

import pytest
from scipy.optimize import rosen, rosen_der

import ksdmin

X0 = [-1.2, 1.0]


def test_the_log(caplog):
    with caplog.at_level(logging.DEBUG, logger="ksdmin"):
        res = ksdmin.minimize(rosen, X0, jac=rosen_der)
    iterations = [r for r in caplog.records if r.levelno == logging.DEBUG]
    assert len(iterations) == res.nit
    assert iterations[0].message.startswith("iteration 1, krylov: value ")
    (end,) = [r for r in caplog.records if r.levelno == logging.INFO]
    assert "Optimization terminated successfully. max |gradient| " in end.message
    assert " (status 0): value " in end.message


def test_it_is_silent_by_default(capfd):
    ksdmin.minimize(rosen, X0, jac=rosen_der)
    assert capfd.readouterr() == ("", "")


def test_the_history_as_a_table():
    pytest.importorskip("pandas")
    res = ksdmin.minimize(rosen, X0, jac=rosen_der)
    table = res.history.to_dataframe()
    assert table.index.name == "iteration"
    assert len(table) == res.nit + 1
    assert list(table.columns) == list(ksdmin.History.columns[1:])
    assert table["value"].iloc[-1] == res.history[-1].value
    assert table.to_csv(io.StringIO()) is None


def test_without_pandas(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        ksdmin.minimize(rosen, X0, jac=rosen_der).history.to_dataframe()
