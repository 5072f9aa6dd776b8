"""What the tutorials claim of their own code."""

import ast
import runpy
import sys
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from tests.jax_precision import jax_in

GALLERY = Path(__file__).parents[2] / "examples" / "gallery"


@pytest.fixture
def tutorial(monkeypatch):
    """What the last tutorial imports and defines, as a module; the rest of it does not run."""
    path = GALLERY / "10_scikit_learn.py"
    tree = ast.parse(path.read_text())
    kept = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef)
    tree.body = [node for node in tree.body if isinstance(node, kept)]
    module = ModuleType("tutorial")
    monkeypatch.setitem(sys.modules, "tutorial", module)  # pickle looks for the class there
    exec(compile(tree, path, "exec"), vars(module))
    return module


@pytest.mark.filterwarnings("ignore")
def test_the_estimator_keeps_scikit_learns_rules(tutorial):
    found = check_estimator(tutorial.KSDClassifier(), on_skip=None)
    assert len(found) > 40


def computed_by(name):
    """All that a tutorial has computed."""
    pytest.importorskip("torch")
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*cannot be shown")
        warnings.filterwarnings("ignore", message=".*torch.jit.script")  # torch.func's own
        found = runpy.run_path(str(GALLERY / name))
    found["plt"].close("all")
    return found


@pytest.fixture(scope="module")
def likelihood():
    return computed_by("11_likelihood.py")


def test_the_likelihood_has_the_estimates_of_the_textbooks(likelihood):
    np.testing.assert_allclose(likelihood["res"].x, [2.102, 81.87], rtol=1e-3)
    np.testing.assert_allclose(likelihood["errors"], [0.3287, 8.601], rtol=1e-3)
    np.testing.assert_allclose(likelihood["learned"], likelihood["errors"], rtol=0.05)
    np.testing.assert_allclose(likelihood["by_differences"].x, likelihood["res"].x, rtol=1e-5)


def test_the_likelihood_says_why_a_run_ended(likelihood):
    assert likelihood["by_differences"].success
    assert likelihood["exact"].success
    assert "finite-difference estimate" in likelihood["greedy"].message
    assert "rises along -jac" in likelihood["wrong"].message
    assert "entry 0 of jac is" in str(likelihood["noticed"][0].message)
    assert likelihood["ageless"].success
    assert likelihood["ageless"].x[0] == 1
    assert 15 < likelihood["ratio"] < 16


@pytest.mark.slow
def test_the_physics_informed_net_is_ten_times_closer():
    with jax_in("float32"):  # the tutorial turns to float64 itself
        found = computed_by("13_physics_informed_net.py")
    assert found["res"].nit == found["res_jax"].nit == 40
    assert found["ratio"] > 10
    assert found["error"](found["by_ksd"]) < 1e-3
    assert found["error_jax"] < 1e-3


@pytest.mark.slow
def test_kronecker_factors_save_passes():
    found = computed_by("15_kronecker_factors.py")
    factors, diagonal = (found["results"][f"KSD, {name}"] for name in ("factors", "diagonal"))
    assert factors.passes < diagonal.passes
    assert factors.fun < 0.9 * diagonal.fun
    assert found["likeness"] > 0.95


@pytest.mark.slow
def test_more_points_are_needed_and_steps_look_at_some_of_them():
    found = computed_by("16_many_points.py")
    few, many = (found["nets"][f"KSD, {count} points"] for count in ("150", "20,000"))
    assert found["few"].fun < found["many"].fun
    assert found["error"](few) > 10 * found["error"](many)
    assert found["many"].history["size_A"].max() < 3_000


@pytest.fixture
def long_run(monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])  # it adds a folder of its own
    yield computed_by("12_long_run.py")
    sys.modules.pop("task")


@pytest.mark.slow
def test_the_long_run_goes_on_as_if_nothing_had_happened(long_run):
    resumed, whole = long_run["resumed"], long_run["whole"]
    assert long_run["first"].nit == 20
    assert resumed.nit == whole.nit == 40
    assert bool((resumed.x == whole.x).all())
    assert abs(long_run["loss_of_two"] - whole.fun) < 1e-2 * whole.fun  # other labels are drawn
    assert long_run["sent"] > 0.1
    assert long_run["right"] > 0.95
    assert not Path(long_run["folder"].name).exists()
