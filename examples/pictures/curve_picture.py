"""One picture: what is left of an error, against seconds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "docs/_static"
COLOURS = {
    "KSD": "#1f77b4",
    "L-BFGS-B": "#ff7f0e",
    "L-BFGS": "#ff7f0e",
    "L-BFGS after Adam": "#9467bd",
    "HF": "#d62728",
    "Adam": "#9467bd",
}


@dataclass(frozen=True)
class Curve:
    """One run.

    Attributes
    ----------
    name : str
        The method, of `COLOURS`.
    seconds, errors : sequences of float
        The run.
    end : str
        What the legend says of its end.
    """

    name: str
    seconds: Sequence[float]
    errors: Sequence[float]
    end: str


@dataclass(frozen=True)
class Picture:
    """What is drawn, and what is said of it.

    Attributes
    ----------
    name : str
        Of its file in docs/_static.
    heading : str
        The use that it shows.
    title, axis : str
        Over the curves, and beside them.
    curves : list of Curve
        KSD's first.
    sentence : str
        The result, with its numbers.
    origin : str
        Machine, date and commit of the runs.
    source : Path
        The file of results.
    limits : dict
        Of the axes, where they should not be matplotlib's own.
    """

    name: str
    heading: str
    title: str
    axis: str
    curves: list[Curve]
    sentence: str
    origin: str
    source: Path
    limits: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Where it is."""
        return STATIC / f"{self.name}.svg"

    @property
    def mark(self) -> str:
        """What its file carries: which results it was drawn from."""
        shown = repr((self.title, self.axis, self.curves, self.limits))
        return f"results {hashlib.sha256(shown.encode()).hexdigest()[:16]}"


def draw(picture: Picture) -> Path:
    """Draw it on white, large enough to be read at a third of a page's width."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(5.2, 3.9), layout="constrained")
    for curve in reversed(picture.curves):  # KSD's on top
        main = curve is picture.curves[0]
        axes.semilogy(
            curve.seconds,
            curve.errors,
            color=COLOURS[curve.name],
            linewidth=3 if main else 2,
            label=f"{curve.name}: {curve.end}",
        )
    axes.set(xlabel="seconds", ylabel=picture.axis, **{"xlim": (0, None), **picture.limits})
    axes.set_title(picture.title, fontsize="medium")
    axes.grid(alpha=0.25)
    axes.legend(reverse=True)
    figure.savefig(picture.path, metadata={"Date": None, "Description": picture.mark})
    plt.close(figure)
    return picture.path


def pyplot() -> Any:
    """Without a screen; files do not change when nothing else does."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"font.size": 13, "svg.hashsalt": "ksdmin", "svg.fonttype": "path"})
    from matplotlib import pyplot

    return pyplot
