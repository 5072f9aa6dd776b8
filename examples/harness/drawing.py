"""matplotlib without a screen, and files that do not change when nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def pyplot() -> Any:
    """matplotlib.pyplot, imported when something is drawn."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "ksdmin"
    from matplotlib import pyplot

    return pyplot


def saved(plt: Any, figure: Any, path: Path) -> Path:
    """Write a figure, and close it."""
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    figure.savefig(path, metadata=metadata, dpi=100)
    plt.close(figure)
    return path
