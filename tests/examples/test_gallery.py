"""What the tutorials claim of their own code."""

import ast
import sys
from pathlib import Path
from types import ModuleType

import pytest
from sklearn.utils.estimator_checks import check_estimator

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
