"""The pictures of README and site, and their sentences, are those of the committed results."""

import re

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("torch")
from examples.harness.store import Store
from examples.physics.run_config import IDENTITY
from examples.pictures import (
    curve_picture,
    front_page,
    one_iteration,
    physics_run,
    todays_nets_run,
)

AGAIN = "results have changed: python -m examples.pictures"


@pytest.mark.parametrize("name", front_page.makers())
def test_picture_is_of_the_results(name):
    picture = front_page.makers()[name]()
    assert picture.name == name
    assert picture.mark in picture.path.read_text(), AGAIN


def test_sentences_of_the_readme_are_of_the_results():
    text = front_page.README.read_text()
    assert front_page.with_sentences(text) == text, AGAIN


def test_readme_shows_all_pictures():
    shown = re.findall(r"!\[[^\]]+\]\((docs/_static/[^)]+)\)", front_page.README.read_text())
    assert {str(picture.path) for picture in front_page.pictures()} == {
        str(curve_picture.ROOT / path) for path in shown
    }


def test_pictures_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(curve_picture, "STATIC", tmp_path)
    monkeypatch.setattr(one_iteration, "FILE", tmp_path / "one-iteration.svg")
    drawn = [*front_page.draw(), *one_iteration.draw()]
    assert sorted(drawn) == sorted(tmp_path.glob("*.svg"))
    assert len(drawn) == len(front_page.makers()) + 1
    assert front_page.pictures()[0].mark in drawn[0].read_text()


def made_up(problem, method, seed, error, hardware, seconds=60.0):
    config = {"problem": problem, "method": method, "seed": seed, "seconds": seconds}
    config |= {"dtype": "float64", "passes": None, "options": {}, "small": False}
    trace = {"seconds": [0.0, seconds], "error": [1.0, error], "loss": [1.0, error]}
    about = {"hardware": hardware, "date": "2026-11-17", "commit": "abc", "torch": "2"}
    return {"config": config, **about, "trace": trace}


def stored(folder, *runs):
    for run in runs:
        Store(folder / f"{run['config']['problem']}.json", IDENTITY).add(run)


@pytest.fixture
def on_cores(tmp_path):
    stored(
        tmp_path,
        *(
            made_up("poisson-9873", m, 0, 1e-3, "x, 2 cores")
            for m in ("ksd", "lbfgs", "adam-lbfgs")
        ),
        made_up("poisson-9873", "ksd", 0, 1e-9, "A GPU"),  # without the others: not shown
    )
    return tmp_path


def test_runs_on_a_gpu_come_first_and_the_median_seed_is_shown(on_cores):
    for seed, error in enumerate((1e-7, 2e-6, 3e-5)):
        for method in ("ksd", "lbfgs", "adam-lbfgs"):
            stored(on_cores, made_up("poisson-9873", method, seed, error, "A GPU", seconds=20.0))
    picture = physics_run.picture(on_cores)
    assert "9,873 parameters. Error after 20 seconds on one GPU: KSD 2.0e-6" in picture.sentence
    assert picture.curves[0].name == "KSD"


def of_today(path, hardware, adam_ends=(0.02, 0.008)):
    about = {"net": "conv", "seed": 0, "seconds": 6.0, "samples": 20_000, "precision": "high"}
    about |= {"hardware": hardware, "date": "2026-11-18", "commit": "abc", "parameters": 220_234}
    ends = [("ksd", None, 0.001), ("torch-lbfgs", None, 0.5)]
    ends += [("adam", 10.0**-i, end) for i, end in enumerate(adam_ends, start=2)]
    for method, rate, end in ends:
        trace = {"seconds": [0.0, 1.0, 6.0], "train": [2.3, 1.0, end]}
        Store(path, todays_nets_run.IDENTITY).add(
            {**about, "method": method, "rate": rate, "trace": trace}
        )


def test_nets_of_today_are_shown_with_the_best_rate_of_adam(tmp_path):
    path = tmp_path / "runs.json"
    of_today(path, "A GPU")
    ((name, make),) = todays_nets_run.makers(path).items()
    picture = make()
    assert name == picture.name == "convolutional-net"
    assert [curve.name for curve in picture.curves] == ["KSD", "Adam", "L-BFGS"]
    assert picture.sentence.startswith(
        "220,234 parameters, 6 seconds on one GPU. Time to a training loss of 0.01: KSD 4.3 s, Adam"
    )
    assert picture.sentence.endswith("L-BFGS not reached.")
    assert "Adam's rate 0.001" in picture.origin
    table = front_page.second_row([picture])
    assert f"| {picture.heading} |" in table
    assert "(docs/_static/convolutional-net.svg)" in table
