"""The pictures, and their sentences in the README."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from examples.pictures import deep_net_run, digits_run, physics_run, todays_nets_run
from examples.pictures.curve_picture import ROOT, Picture
from examples.pictures.curve_picture import draw as draw_picture

README = ROOT / "README.md"
FIRST_ROW = {
    "physics-informed-net": physics_run.picture,
    "sum-of-losses": digits_run.picture,
    "deep-net": deep_net_run.picture,
}
SECOND_ROW = "<!-- nets of today -->", "<!-- end of nets of today -->"
BENCHMARK = "[Nets of today](docs/benchmarks.md#nets-of-today)"


def makers() -> dict[str, Callable[[], Picture]]:
    """All that there are results for."""
    return FIRST_ROW | todays_nets_run.makers()


def pictures() -> list[Picture]:
    """All of them, from the results as they are."""
    return [make() for make in makers().values()]


def draw() -> list[Path]:
    """Their files."""
    return [draw_picture(picture) for picture in pictures()]


def with_sentences(text: str) -> str:
    """The README's text with the sentence of each picture between its marks."""
    for picture in (make() for make in FIRST_ROW.values()):
        text = _filled(text, f"<!-- sentence: {picture.name} -->", "<!-- end -->", _told(picture))
    below = second_row([make() for make in todays_nets_run.makers().values()])
    return _filled(text, *SECOND_ROW, f"\n{below}")


def second_row(pictures: list[Picture]) -> str:
    """The README's table of the nets of today; nothing where there are no pictures."""
    if not pictures:
        return ""
    rows = [
        [picture.heading for picture in pictures],
        ["---"] * len(pictures),
        [
            f"![{picture.title}: {picture.axis} against seconds]({picture.path.relative_to(ROOT)})"
            for picture in pictures
        ],
        [f"{_told(picture)} {BENCHMARK}" for picture in pictures],
    ]
    return "\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in rows) + "\n"


def _told(picture: Picture) -> str:
    """The sentence, and where its figures come from."""
    return f"{picture.sentence} <sub>{picture.origin}.</sub>"


def _filled(text: str, begin: str, end: str, content: str) -> str:
    """The text with `content` between two marks."""
    written = f"{begin}{content}{end}"
    text, found = re.subn(
        f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: written, text, flags=re.DOTALL
    )
    if found != 1:
        raise ValueError(f"README.md: expected {begin} once, found it {found} times")
    return text


def write_sentences() -> None:
    """Into the README."""
    README.write_text(with_sentences(README.read_text()))
