"""The benchmark of KSD's own algebra and memory: what is measured, and the tables."""

import numpy as np
import pytest

SCRIPT = "growth"


def test_the_peak_is_counted_in_vectors(script):
    n = 50_000
    assert script.peak(n, lambda: np.ones((3, n))) == pytest.approx(3, abs=0.1)
    assert script.peak(n, lambda: None) == pytest.approx(0, abs=0.1)


def test_runs_are_kept_and_shown(script, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(script, "WHOLE_CASES", ((5, 1, 2),))
    monkeypatch.setattr(script, "SAMPLE_CASES", ())
    monkeypatch.setattr(script, "REPETITIONS", 0)
    out = ["--out", str(tmp_path / "growth.json")]
    script.main([*out, "--largest", "1000", "--dimensions", "5", "--memory-n", "200"])
    capsys.readouterr()
    script.main([*out, "--table"])
    shown = capsys.readouterr().out
    assert "| n | K = 5 | default |" in shown
    assert "| whole set, K = 5, memory = 1, pairs = 2 |" in shown
