"""The three pictures, and their sentences in the README."""

from __future__ import annotations

import re
from pathlib import Path

from examples.pictures import deep_net_run, digits_run, physics_run
from examples.pictures.curve_picture import ROOT, Picture
from examples.pictures.curve_picture import draw as draw_picture

README = ROOT / "README.md"
MAKERS = {
    "sum-of-losses": digits_run.picture,
    "physics-informed-net": physics_run.picture,
    "deep-net": deep_net_run.picture,
}


def pictures() -> list[Picture]:
    """All three, from the results as they are."""
    return [make() for make in MAKERS.values()]


def draw() -> list[Path]:
    """Their files."""
    return [draw_picture(picture) for picture in pictures()]


def with_sentences(text: str) -> str:
    """The README's text with the sentence of each picture between its marks."""
    for picture in pictures():
        begin, end = f"<!-- sentence: {picture.name} -->", "<!-- end -->"
        written = f"{begin}{picture.sentence}{end}"
        text, found = re.subn(
            f"{re.escape(begin)}.*?{end}", lambda _, new=written: new, text, flags=re.DOTALL
        )
        if found != 1:
            raise ValueError(f"README.md: expected {begin} once, found it {found} times")
    return text


def write_sentences() -> None:
    """Into the README."""
    README.write_text(with_sentences(README.read_text()))
