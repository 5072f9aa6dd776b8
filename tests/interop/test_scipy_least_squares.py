"""SciPy's own tests of ``least_squares`` and ``curve_fit``, run with ours in their place.

The SciPy wheel ships its tests. Every call of either function in them goes to ours, whichever of
SciPy's methods it asks for. The file is both the test and the pytest plugin for the process that
runs SciPy's tests (``-p``), as ``test_scipy_suite.py`` is.
"""

import sys

import pytest
import scipy.optimize

from tests.interop.scipy_process import (
    assert_failures_are_known,
    noted,
    pytest_addoption,  # noqa: F401
    pytest_sessionfinish,  # noqa: F401
    reported,
)

FILES = {"test_least_squares.py": None, "test_minpack.py": "TestCurveFit"}

# Tests of what makes one of SciPy's methods that method.
DESELECTED = {
    "test_bounds_not_supported": "lm has no bounds: ours has",
    "test_m_less_n_not_supported": "lm refuses few residuals: ours does not",
    "test_sparse_not_supported": "lm refuses sparse Jacobians: ours does not",
    "test_jac_sparsity_not_supported": "lm refuses jac_sparsity: ours does not",
    "test_LinearOperator_not_supported": "lm refuses operators: ours does not",
    "test_small_tolerances_for_lm": "lm refuses to do without one of its tests",
    "test_lsmr_regularization": "an option of trf's lsmr",
    "test_exact_tr_solver": "tr_solver is that of trf and dogbox",
    "test_workers": "ours refuses workers",
    "test_fp32_gh12991": "in float32: 9.2e-5 from COBYQA's solution, where it asks for 9e-5",
}
SAME = "TestDogbox"  # the tests of TestTRF with another method, to which ours pays no heed
TRF, LM = (f"test_least_squares.py::Test{method}::" for method in ("TRF", "LM"))
KNOWN_FAILURES = {
    f"{TRF}test_wrong_parameters": "tr_options of SciPy's lsmr have no effect, nor wrong ones",
    f"{TRF}test_linear_operator": "tr_solver='exact', which an operator cannot have, has none",
    f"{TRF}test_x_scale_jac_scale": "the columns of a small operator are known: 'jac' is no error",
    f"{LM}test_full_result": "wants njev to be None",
    f"{LM}test_rosenbrock_cropped": "wants fewer residuals than unknowns to be refused",
    f"{LM}test_loss": "wants robust losses to be refused",
    "test_least_squares.py::test_gh_18793_and_19351": "wants gtol to be an absolute test",
}


# --- The plugin: what happens in the process that runs SciPy's tests ---


def pytest_configure(config):
    """Our functions in the place of SciPy's."""
    import ksdmin

    def least_squares(*args, method="ksd", **kwargs):
        return ksdmin.least_squares(*args, **kwargs)

    def curve_fit(*args, method=None, **kwargs):
        return ksdmin.curve_fit(*args, **kwargs)

    for ours, name in ((least_squares, "least_squares"), (curve_fit, "curve_fit")):
        theirs = getattr(scipy.optimize, name)
        for known, module in list(sys.modules.items()):
            own = known.startswith("ksdmin") or known == "scipy.optimize._minpack_py"
            if not own and getattr(module, "__dict__", {}).get(name) is theirs:
                setattr(module, name, ours)


def pytest_collection_modifyitems(items):
    def selected(item):
        group = FILES[item.path.name]
        wanted = item.originalname not in DESELECTED and SAME not in item.nodeid
        return wanted and (group is None or group in item.nodeid)

    items[:] = filter(selected, items)


def pytest_runtest_logreport(report):
    if report.when == "call" and not report.skipped:
        noted(report)


# --- The test: such a process, and what it reports ---


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return reported(__file__, FILES, tmp_path_factory.mktemp("scipy_least_squares"))


def test_every_failure_is_known(report):
    assert_failures_are_known(report, KNOWN_FAILURES)


def test_every_known_failure_still_fails(report):
    assert not [test for test in KNOWN_FAILURES if report.get(test) == ""]
