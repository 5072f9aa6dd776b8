"""The pictures of README and site, and their sentences, are those of the committed results."""

import re

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("torch")
from examples.pictures import (
    curve_picture,
    front_page,
    one_iteration,
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


@pytest.mark.slow
def test_pictures_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(curve_picture, "STATIC", tmp_path)
    monkeypatch.setattr(one_iteration, "FILE", tmp_path / "one-iteration.svg")
    drawn = [*front_page.draw(), *one_iteration.draw()]
    assert sorted(drawn) == sorted(tmp_path.glob("*.svg"))
    assert len(drawn) == len(front_page.makers()) + 1
    assert front_page.pictures()[0].mark in drawn[0].read_text()
