"""SciPy's own tests of ``minimize``, run with our method in place of SciPy's.

The SciPy wheel ships its tests. Those of the unconstrained methods in ``REPLACED`` say what users
of ``minimize`` may rely on: options, callbacks, NaNs, counters, shapes. Here every request for one
of those methods goes through SciPy's custom-method path to ours. Every test that fails is known,
with the reason.

The file is both the test and the pytest plugin for the process that runs SciPy's tests (``-p``);
that process is a fresh one, since it patches ``scipy.optimize`` and must not see our own settings.
"""

import inspect
import os
import sys
from unittest import mock

import scipy.optimize
from scipy.optimize import minimize as scipy_minimize

from tests.interop.scipy_process import (
    assert_failures_are_known,
    noted,
    pytest_addoption,  # noqa: F401
    pytest_sessionfinish,  # noqa: F401
    reported,
)

REPLACED = {"bfgs", "newton-cg", "trust-krylov", "trust-ncg", "trust-exact", "dogleg"}
LEGACY = {"fmin_bfgs": ("_minimize_bfgs", "bfgs"), "fmin_ncg": ("_minimize_newtoncg", "newton-cg")}

# Where to look: file -> its tests that reach a replaced method, or None for all that prove to.
# (test_lbfgsb_hessinv.py is missing since it wants nothing but BFGS's own hess_inv.)
FILES = {
    "test_optimize.py": None,
    "test_trustregion.py": None,
    "test__basinhopping.py": "test_njev test_jac test_all_minimizers test_all_nograd_minimizers",
    "test__dual_annealing.py": "test_multi_ls_minimizer test_gradient_gnev "
    "test_callable_jac_hess_with_args_gh11052",
    "test__shgo.py": "test_7_3_minkwargs test_21_3_hess_options_rosen",
}

# Tests of what makes one of the replaced algorithms that algorithm.
DESELECTED = {
    "test_bfgs": "pins the evaluation counts and the trace of BFGS",
    "test_bfgs_hess_inv0_neg": "BFGS's own option hess_inv0",
    "test_bfgs_hess_inv0_semipos": "BFGS's own option hess_inv0",
    "test_bfgs_hess_inv0_sanity": "BFGS's own option hess_inv0",
    "test_bfgs_xrtol": "BFGS's own option xrtol, by its effect on nit",
    "test_bfgs_c1": "BFGS's own line search option c1, by its effect on nfev",
    "test_bfgs_c2": "BFGS's own line search option c2, by its effect on nit",
    "test_ncg": "pins the evaluation counts and the trace of Newton-CG",
    "test_ncg_hess": "pins the evaluation counts and the trace of Newton-CG",
    "test_ncg_hessp": "pins the evaluation counts and the trace of Newton-CG",
    "test_ncg_zero_xtol": "Newton-CG's own option xtol, by which minimum of cos it steps into",
    "test_initial_step_scaling": "pins the first step of BFGS (1.01) and nit <= 3",
    "test_solver_concordance": "wants nit of dogleg below nit of Newton-CG: here they are the same",
    "test_workers": "brute's processes",
    "test_multiprocessing_too_many_open_files_23080": "calls the private _minimize_bfgs",
}

# In the names of tests of other methods, some of which take seconds.
OTHERS = ("neldermead", "powell", "cobyla", "cobyqa", "slsqp", "tnc", "l_bfgs", "cg_cornercase")

# Tests that our method fails, and why it should. (SciPy's BFGS as a custom method fails the first
# of these, too.)
SIMPLE = "test_optimize.py::TestOptimizeSimple::"
KNOWN_FAILURES = {
    f"{SIMPLE}test_finite_differences_hess": "wants trust-* to refuse what Newton-CG must accept",
    f"{SIMPLE}test_bfgs_nan_return": "wants the NaN, not the finite value seen before it",
    f"{SIMPLE}test_minimize_warnings_gh1953[bfgs]": "converges before maxiter, no need to warn",
    f"{SIMPLE}test_minimize_warnings_gh1953[newton-cg]": "converges before maxiter, as above",
    "test_optimize.py::TestNewtonCg::test_himmelblau": "finds another of four equal minima",
    "test_trustregion.py::TestTrustRegionSolvers::test_dogleg_user_warning": (
        "wants a RuntimeWarning where BFGS's tests want an OptimizeWarning"
    ),
}


# --- The plugin: what happens in the process that runs SciPy's tests ---

reached = set()  # the tests that have called the method: these are the applicable ones


def pytest_configure(config):
    """Route requests for a replaced method through SciPy's custom-method path."""
    import ksdmin

    signature = inspect.signature(scipy_minimize)

    def method(*args, **kwargs):
        reached.add(os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0])
        return ksdmin.ksd(*args, **kwargs)

    def minimize(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        name = given.get("method")
        if name is None and given.get("bounds") is None and not given.get("constraints"):
            name = "bfgs"  # SciPy's default
        if isinstance(name, str) and name.lower() in REPLACED:
            given["method"] = method
        return scipy_minimize(**given)

    def legacy(fmin, private, name):
        def replacement(*args, callback=None, **kwargs):
            def call(fun, x0, args=(), jac=None, hess=None, hessp=None, **options):
                # fmin_* fill in these options unasked, for their own algorithm only; and they
                # wrap the callback, which would hide whether our method copies x for it.
                for own in ("hess_inv0", "xrtol", "xtol", "c1", "c2", "callback"):
                    options.pop(own, None)
                optional = {"callback": callback, "options": options}
                return minimize(fun, x0, args, name, jac, hess, hessp, **optional)

            with mock.patch.object(scipy.optimize._optimize, private, call):
                return fmin(*args, **kwargs)

        return replacement

    for name, module in list(sys.modules.items()):
        if name.startswith("scipy.optimize") and vars(module).get("minimize") is scipy_minimize:
            module.minimize = minimize
    for name, inside in LEGACY.items():
        setattr(scipy.optimize, name, legacy(getattr(scipy.optimize, name), *inside))


def pytest_collection_modifyitems(items):
    """Drop the deselected tests, and to save time those that cannot reach the method."""

    def selected(item):
        names = FILES[item.path.name]
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        return (
            item.originalname not in DESELECTED
            and not any(other in item.originalname for other in OTHERS)
            and (names is None or item.originalname in names.split())
            and str(parameters.get("method", "bfgs")).lower() in REPLACED | LEGACY.keys()
        )

    items[:] = filter(selected, items)


def pytest_runtest_logreport(report):
    if report.when == "call" and report.nodeid in reached and not report.skipped:
        noted(report)


# --- The test: such a process, and what it reports ---


def test_every_failure_is_known(tmp_path):
    assert_failures_are_known(reported(__file__, FILES, tmp_path), KNOWN_FAILURES)
