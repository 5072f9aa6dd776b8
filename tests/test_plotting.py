"""Pictures that are right without arguments."""

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der

import ksdmin

pyplot = pytest.importorskip("matplotlib.pyplot")
pyplot.switch_backend("agg")

X0 = [-1.2, 1.0, 0.5]


@pytest.fixture(scope="module")
def runs():
    def run(method):
        return ksdmin.minimize(rosen, X0, jac=rosen_der, method=method, options={"maxiter": 40})

    return {"KSD": run("ksd"), "HF": run("hf")}


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


def test_labels_and_axes(runs):
    ax = ksdmin.plotting.convergence(runs)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["KSD", "HF"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == (
        "passes over the data", "value above the lowest of all runs",
    )  # fmt: skip
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    line = ax.get_lines()[0]
    np.testing.assert_array_equal(line.get_xdata(), runs["KSD"].history["passes"])
    lowest = min(res.history["value"].min() for res in runs.values())
    assert line.get_ydata()[0] == rosen(X0) - lowest


@pytest.mark.parametrize(
    ("against", "label"),
    [("seconds", "seconds"), ("evaluations", "values and"), ("iterations", "iterations")],
)
def test_what_it_is_drawn_against(runs, against, label):
    ax = ksdmin.plotting.convergence(list(runs.values()), against, "gradient_norm")
    assert ax.get_xlabel().startswith(label)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["run 1", "run 2"]
    assert ax.get_yscale() == "log"


def test_one_run_needs_no_legend_and_values_below_zero_no_logarithm():
    res = ksdmin.minimize(lambda x: x @ x - 3.0, [1.0], jac=lambda x: 2 * x)
    _, own = pyplot.subplots()
    ax = ksdmin.plotting.convergence(res, show="value", ax=own)
    assert ax is own
    assert ax.get_legend() is None
    assert ax.get_yscale() == "linear"
    assert ax.get_xscale() == "linear"


def test_what_is_refused(runs):
    with pytest.raises(ValueError, match=r"against='second'.*did you mean 'seconds'"):
        ksdmin.plotting.convergence(runs, "second")
    with pytest.raises(ValueError, match="show='f'"):
        ksdmin.plotting.convergence(runs, show="f")
    with pytest.raises(TypeError, match="expected what minimize returned"):
        ksdmin.plotting.convergence(3)
    scipys = ksdmin.minimize(rosen, X0, jac=rosen_der, method="BFGS")
    with pytest.raises(ValueError, match="'BFGS' has no history"):
        ksdmin.plotting.convergence({"KSD": runs["KSD"], "BFGS": scipys})
