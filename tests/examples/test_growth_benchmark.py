"""The benchmark of KSD's own algebra and memory: what is measured, and the tables."""

SCRIPT = "growth"


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
