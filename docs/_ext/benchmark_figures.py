"""Figures of the page of benchmarks, drawn from the committed results when the site is built."""

from pathlib import Path

from examples.pictures.curve_picture import pyplot

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs/generated/benchmarks"
LINE = {"color": "0.3", "linewidth": 1.2}


def ratios(name, groups, labels):
    """KSD's share of another's cost: one row of dots a group, left of the line KSD needs less.

    `groups` is {row: {label: [ratio, ...]}}, one panel for each of the labels.
    """
    plt = pyplot()
    size = (4.6 * len(labels), 0.36 * len(groups) + 1.2)
    figure, panels = plt.subplots(1, len(labels), figsize=size, sharey=True, layout="constrained")
    every = [value for shown in groups.values() for values in shown.values() for value in values]
    limits = min(0.1, 0.7 * min(every)), max(10, 1.4 * max(every))
    for panel, label in zip(panels, labels, strict=True):
        for place, shown in enumerate(groups.values()):
            values = shown[label]
            panel.plot(values, [place] * len(values), "o", color="tab:blue", alpha=0.55)
        panel.axvline(1, **LINE)
        panel.set(xscale="log", xlabel=label, xlim=limits)
        panel.grid(alpha=0.3)
    panels[0].set_yticks(range(len(groups)), list(groups))
    panels[0].invert_yaxis()
    return saved(plt, figure, name)


def against_size(name, points, label):
    """Ratios against the number of unknowns; `points` is {series: [(n, ratio), ...]}."""
    plt = pyplot()
    figure, panel = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for (series, pairs), marker in zip(points.items(), "os", strict=False):
        panel.loglog(*zip(*pairs, strict=True), marker, alpha=0.6, label=series)
    panel.axhline(1, **LINE)
    panel.set(xlabel="unknowns", ylabel=label)
    panel.grid(alpha=0.3)
    panel.legend()
    return saved(plt, figure, name)


def saved(plt, figure, name):
    """Where Markdown finds it."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURES / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
    return f"generated/benchmarks/{name}.svg"
