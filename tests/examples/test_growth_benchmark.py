"""The benchmark of KSD's own algebra and memory: what is measured, and the tables."""

import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="module")
def growth():
    """The script, which finds its neighbours as one that is run by name does."""
    folder, before = Path(__file__).parents[2] / "examples/benchmarks", list(sys.path)
    sys.path.insert(0, str(folder))
    try:
        from examples.benchmarks import growth
    finally:
        sys.path[:] = before
    return growth


def test_the_peak_is_counted_in_vectors(growth):
    n = 50_000
    assert growth.peak(n, lambda: np.ones((3, n))) == pytest.approx(3, abs=0.1)
    assert growth.peak(n, lambda: None) == pytest.approx(0, abs=0.1)


def test_runs_are_kept_and_shown(growth, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(growth, "WHOLE_CASES", ((5, 1, 2),))
    monkeypatch.setattr(growth, "SAMPLE_CASES", ())
    monkeypatch.setattr(growth, "REPETITIONS", 0)
    out = ["--out", str(tmp_path / "growth.json")]
    growth.main([*out, "--largest", "1000", "--dimensions", "5", "--memory-n", "200"])
    capsys.readouterr()
    growth.main([*out, "--table"])
    shown = capsys.readouterr().out
    assert "| n | K = 5 | default |" in shown
    assert "| whole set, K = 5, memory = 1, pairs = 2 |" in shown
