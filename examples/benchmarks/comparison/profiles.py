"""Performance and data profiles, as figures.

A performance profile shows, for each factor, the share of problems that a method solves within that
factor of the best method's work (E. Dolan and J. More, 2002). A data profile shows the share that
it solves with that much work, in units of n + 1 (J. More and S. Wild, 2009).
"""

from __future__ import annotations

import numpy as np

from examples.benchmarks.comparison import solvers
from examples.benchmarks.comparison.scores import Scores, stored

TARGETS = {"gradient_work": "by gradient", "value_work": "by value"}
STYLES = ("-", "--", "-.", ":")


def works(scores: Scores, names: list[str], key: str) -> dict[str, np.ndarray]:
    """Work to the target, by tag: one entry per problem, infinite where it was not reached."""
    return {
        tag: np.array([np.inf if of_tag[n][key] is None else of_tag[n][key] for n in names], float)
        for tag, of_tag in scores.runs.items()
    }


def share(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The share of the values that are at most `at`, for each entry of it."""
    return np.searchsorted(np.sort(values), at, side="right") / len(values)


def performance(axes, spent: dict[str, np.ndarray]) -> None:
    least = np.maximum(np.min(list(spent.values()), axis=0), 1)
    least[~np.isfinite(least)] = 1  # no method solves it: infinite over 1 stays unsolved
    at = np.geomspace(1, 100, 400)
    for style, (tag, work) in zip(styles(spent), spent.items(), strict=True):
        axes.plot(at, share(np.maximum(work, 1) / least, at), **style, label=label(tag))
    axes.set(xscale="log", xlabel="work, as a multiple of the best method's")


def data(axes, spent: dict[str, np.ndarray], sizes: np.ndarray) -> None:
    at = np.geomspace(1, 5000, 400)
    for style, (tag, work) in zip(styles(spent), spent.items(), strict=True):
        axes.plot(at, share(work / (sizes + 1), at), **style, label=label(tag))
    axes.set(xscale="log", xlabel="work / (n + 1)")


def styles(spent: dict) -> list[dict]:
    """Ten colours, then another dash; what comes first is drawn above the others, and thicker."""
    return [
        {
            "color": f"C{i % 10}",
            "linestyle": STYLES[(i // 10 + i) % len(STYLES)] if i else "-",
            "linewidth": 1.6 if i else 2.8,
            "zorder": 2 if i else 3,
        }
        for i in range(len(spent))
    ]


def label(tag: str) -> str:
    return solvers.LABELS.get(tag, tag)


def draw(scores: Scores, half: str, keep: bool) -> None:
    """One figure per target: performance profile beside data profile."""
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("profiles need matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"font.size": 11, "svg.hashsalt": "ksdmin"})
    names = scores.subset(half)
    sizes = np.array([scores.about[name]["n"] for name in names])
    for key, target in TARGETS.items():
        spent = works(scores, names, key)
        if keep:
            spent = {tag: work for tag, work in spent.items() if tag in solvers.PROFILED}
        figure = two_panels(spent, sizes)
        figure.suptitle(f"{scores.collection}, {half}: {len(names)} problems, solved {target}")
        name = f"profiles-{key.removesuffix('_work')}"
        if half != "all":
            name += f"-{half}"
        file = (stored(scores.collection) if keep else scores.cache) / f"{name}.svg"
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, metadata={"Date": None})
        print(file)


def two_panels(spent: dict[str, np.ndarray], sizes: np.ndarray):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    performance(left, spent)
    data(right, spent, sizes)
    left.set(ylim=(0, 1.02), ylabel="share of problems solved", title="performance profile")
    right.set_title("data profile")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.margins(x=0)
    figure.legend(*left.get_legend_handles_labels(), loc="outside right center")
    return figure
