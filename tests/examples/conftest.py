"""What tests of the examples share."""

import importlib
from pathlib import Path

import pytest

from tests.reference_runs import registry

FOLDER = Path(__file__).parents[2] / "examples/benchmarks"


@pytest.fixture
def script(request, monkeypatch):
    """A script of the benchmarks, imported as it is started: beside the others of its folder."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module(f"examples.benchmarks.{request.module.SCRIPT}")


@pytest.fixture
def one_thread():
    """Nets this small are faster so, and other processes disturb them less."""
    with registry.one_thread():
        yield
