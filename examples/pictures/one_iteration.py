"""One iteration and its sets A, B and C, with what each cost in the run on the digits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from examples.pictures.curve_picture import STATIC, pyplot
from examples.pictures.digits_run import RESULTS

FILE = STATIC / "one-iteration.svg"
COLUMNS, ROWS = 12, 10  # of the little squares, one for so many samples
COLOURS = {"A": "#1f77b4", "B": "#2ca02c", "C": "#ff7f0e"}
STEPS = {
    "A": ("1. gradient", "$g$ on the samples A"),
    "B": ("2. curvature", "products $Hv$ on B\nmake a basis $V$"),
    "C": ("3. search", "BFGS for $d = Va$ on C,\na few numbers $a$"),
}
TAKEN = ("4. step", "taken if the value on A\nhas not risen")
WIDTH = 2.9  # from one step to the next


def costs() -> dict[str, float]:
    """Passes over the samples that an iteration spent on each set, the mean of the run."""
    run = json.loads(RESULTS.read_text())["runs"]["KSD"]
    steps = len(run["passes"]) - 1
    total = (run["passes"][-1] - run["passes"][0]) / steps
    products, gradient = run["product_passes"] / steps, 2.0  # value and gradient at the new point
    return {"A": gradient, "B": products, "C": total - products - gradient}


def shares() -> dict[str, float]:
    """Of the samples, at the start of the run."""
    report = json.loads(RESULTS.read_text())
    return {name: size / report["samples"] for name, size in report["runs"]["KSD"]["sizes"].items()}


def draw() -> list[Path]:
    """The picture."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(10.4, 4.3), layout="constrained")
    for place, (name, cells) in enumerate(drawn_sets().items()):
        x = place * WIDTH
        _samples(axes, x, cells, COLOURS[name])
        _say(axes, x, 1.75, f"{name}: {_in_words(shares()[name])}", COLOURS[name])
        _box(axes, x, *STEPS[name], COLOURS[name])
        _say(axes, x, -2.05, f"{costs()[name]:.1f} passes", "#555555")
        _arrow(axes, (x, -0.05), (x, -0.3))
        _arrow(axes, (x + 1.2, -1.0), (x + WIDTH - 1.2, -1.0))
    _box(axes, 3 * WIDTH, *TAKEN, COLOURS["A"])
    _say(
        axes, 3 * WIDTH, 0.75, "less than half of what\nwas predicted?\nThe sets double.", "#555555"
    )
    _arrow(axes, (3 * WIDTH, -0.3), (3 * WIDTH, 0.05))
    axes.set(xlim=(-1.4, 3 * WIDTH + 1.4), ylim=(-2.35, 2.0))
    axes.set_aspect("equal")
    axes.axis("off")
    figure.savefig(FILE, metadata={"Date": None})
    plt.close(figure)
    return [FILE]


def drawn_sets() -> dict[str, np.ndarray]:
    """Which squares each set has: B and C by chance, and apart."""
    count = ROWS * COLUMNS
    order = np.random.default_rng(0).permutation(count)
    sizes = {name: max(1, round(share * count)) for name, share in shares().items()}
    B, C = order[: sizes["B"]], order[sizes["B"] : sizes["B"] + sizes["C"]]
    return {"A": order[: sizes["A"]], "B": B, "C": C}


def _in_words(share: float) -> str:
    return "all samples" if share == 1 else f"1/{round(1 / share)} of them"


def _samples(axes: Any, x: float, chosen: np.ndarray, colour: str) -> None:
    from matplotlib.patches import Rectangle

    side = 0.145
    for cell in range(ROWS * COLUMNS):
        corner = (x + (cell % COLUMNS - COLUMNS / 2) * side, 0.1 + cell // COLUMNS * side)
        face = colour if cell in chosen else "#e6e6e6"
        axes.add_patch(Rectangle(corner, 0.8 * side, 0.8 * side, facecolor=face))


def _box(axes: Any, x: float, title: str, text: str, colour: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    shape = FancyBboxPatch(
        (x - 1.05, -1.6), 2.1, 1.2, boxstyle="round,pad=0.08", facecolor="white", edgecolor=colour
    )
    axes.add_patch(shape)
    axes.text(x, -0.62, title, ha="center", va="center", weight="bold", fontsize=11)
    axes.text(x, -1.15, text, ha="center", va="center", fontsize=10)


def _say(axes: Any, x: float, y: float, text: str, colour: str) -> None:
    axes.text(x, y, text, ha="center", va="center", fontsize=10.5, color=colour)


def _arrow(axes: Any, begin: tuple[float, float], end: tuple[float, float]) -> None:
    look = {"arrowstyle": "->", "color": "#555555", "linewidth": 1.4}
    axes.annotate("", xytext=begin, xy=end, arrowprops=look)
