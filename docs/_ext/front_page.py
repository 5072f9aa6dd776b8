"""The pictures of the front page, each with its sentence and where it comes from."""

from pathlib import Path

from examples.pictures.front_page import pictures

ROOT = Path(__file__).parents[2]
# picture: where its use is told
READ_ON = {
    "sum-of-losses": "[Tutorial 2](tutorials/02_logistic_regression.rst)",
    "physics-informed-net": "[Physics-informed nets](physics_informed_nets.md)",
    "deep-net": "[Experiments](experiments.md)",
    "convolutional-net": "[Nets of today](benchmarks.md#nets-of-today)",
    "character-transformer": "[Nets of today](benchmarks.md#nets-of-today)",
}


def grid():
    """A card for each."""
    return "\n".join(["::::{grid} 1 1 3 3", ":gutter: 2", "", *map(card, pictures()), "::::"])


def card(picture):
    source = f"{{download}}`Results <../{picture.source.relative_to(ROOT)}>`"
    return "\n".join(
        [
            f":::{{grid-item-card}} {picture.heading}",
            f"![{picture.title}: {picture.axis} against seconds](_static/{picture.path.name})",
            "",
            f"{picture.sentence} {READ_ON[picture.name]}",
            "",
            f"<small>{source}: {picture.origin}</small>",
            ":::",
            "",
        ]
    )
