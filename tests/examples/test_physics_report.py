"""Commands, tables and figures of examples/physics, from runs that are made up or small."""

import json
from dataclasses import asdict

import pytest

from examples.physics.cli import main
from examples.physics.run_config import Config

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")


def made_up(problem, method, seed, errors, *, picture=None, hardware="a machine", **config):
    """A run whose losses are a tenth of its errors."""
    count = len(errors)
    trace = {
        "seconds": [60.0 * (i + 1) / 3 for i in range(count)],
        "iterations": list(range(count)),
        "passes": [10.0 * i for i in range(count)],
        "loss": [error / 10 for error in errors],
        "error": list(errors),
    }
    run = {
        "config": asdict(Config(problem, method, seed, 60.0, **config)),
        **{"date": "2020-01-01", "commit": "abc", "hardware": hardware, "torch": "2"},
        **{"parameters": 257, "message": "", "trace": trace},
    }
    return run if picture is None else {**run, "picture": [picture] * 41**2}


@pytest.fixture
def folder(tmp_path):
    runs = [
        *(made_up("poisson-257", "ksd", s, [1, 0.1, e]) for s, e in enumerate((3e-5, 1e-6, 2e-5))),
        made_up("poisson-257", "lm", 0, [1, 0.1, 1e-4], picture=1e-4),
        made_up("poisson-257", "lbfgs", 0, [1, 0.5]),  # it stopped after 40 s
        made_up("poisson-257", "ksd", 0, [1, 1, 1e-9], options={"krylov_dim": 5}),
        made_up("wave", "ksd", 0, [1, 0.5, 0.25], picture=0.0),
        made_up("wave", "ksd", 0, [1, 0.75, 0.5], dtype="float32"),
    ]
    for problem in ("poisson-257", "wave"):
        own = [run for run in runs if run["config"]["problem"] == problem]
        (tmp_path / f"{problem}.json").write_text(json.dumps(own))
    return tmp_path


def cells(text, start):
    line = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_the_table_has_medians_beside_published_errors(folder, tmp_path, capsys):
    main(["table", "--results", str(folder)])
    text = capsys.readouterr().out
    header = cells(text, "problem")
    poisson = dict(zip(header, cells(text, "2d Poisson, 257"), strict=True))
    assert (poisson["seconds"], poisson["seeds"]) == ("60", "1–3")
    assert poisson["KSD"] == "**2.0e-05**"  # the median; other options are not among them
    assert poisson["exact Levenberg-Marquardt"] == "1.0e-04"
    assert poisson["torch L-BFGS"] == "5.0e-01 (40 s)"
    assert poisson["published"].startswith("6.1e-08 (ENGD")
    assert poisson["published"].endswith("9.1e-06 at 60 s")
    assert cells(text, "Wave, relative error, float64")[3] == "**2.5e-01**"
    assert cells(text, "Wave, relative error, float32")[3] == "**5.0e-01**"
    losses = text[text.index("Losses") :]
    assert cells(losses, "2d Poisson, 257")[3] == "**2.0e-06**"
    assert "Measured on a machine, 2020-01-01, commit abc, torch 2." in text
    main(["table", "--results", str(folder), "--out", str(tmp_path / "table.md")])
    assert (tmp_path / "table.md").read_text().strip() == text.strip()


@pytest.mark.slow
def test_figures_are_drawn(folder, capsys):
    pytest.importorskip("matplotlib")
    main(["figures", "--results", str(folder)])
    names = ("errors.svg", "poisson-257-float64-60s.png", "wave-float64-60s.png")
    drawn = [folder / "figures" / name for name in names]
    assert all(path.stat().st_size > 5_000 for path in drawn)
    assert sorted(folder.glob("figures/*")) == sorted(drawn)
    assert "torch L-BFGS" in drawn[0].read_text()
    assert str(drawn[0]) in capsys.readouterr().out


def small_run(folder, *more):
    main(["run", "poisson-257", "--small", "--passes", "20", "--results", str(folder), *more])


def test_a_run_is_stored_once(tmp_path, capsys):
    small_run(tmp_path, "--method", "lbfgs", "--commit", "abc")
    (run,) = json.loads((tmp_path / "poisson-257.json").read_text())
    assert run["commit"] == "abc"
    assert "there already" not in capsys.readouterr().out
    small_run(tmp_path, "--method", "lbfgs", "--commit", "another")
    assert "there already: poisson-257, lbfgs, seed 0" in capsys.readouterr().out
    small_run(tmp_path, "--method", "lbfgs", "--seed", "1")
    assert len(json.loads((tmp_path / "poisson-257.json").read_text())) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run wave --method bfgs", "bfgs is not for wave, which is compared with ksd, hf, "),
        ("run wave --seconds 0", "seconds: 0 is no limit; expected a number above 0"),
        ("table", r"holds no runs: python -m examples\.physics run"),
        ("all --budget 30", r"--budget 30: a run of 60 s takes up to"),
    ],
)
def test_wrong_arguments_end_without_a_traceback(arguments, message, tmp_path):
    with pytest.raises(SystemExit, match=message):
        main([*arguments.split(), "--results", str(tmp_path)])
