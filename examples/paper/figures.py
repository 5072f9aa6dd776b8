"""The paper's figures from the stored runs: convergence curves, and where the time goes."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from examples.harness.drawing import pyplot, saved
from examples.harness.store import Run
from examples.paper.published_rows import Row
from examples.paper.run_config import rows
from examples.paper.seed_series import Series, best_series, by_method

COLOURS = {
    "ksd": "tab:blue",
    "ksd-diagonal": "tab:gray",
    "ksd-krylov": "navy",
    "ksd-paper": "tab:cyan",
    "hf": "tab:red",
    "hf-kronecker": "tab:orange",
    "lbfgsb": "tab:green",
    "torch-lbfgs": "tab:olive",
    "ncg": "tab:brown",
    "nag": "tab:pink",
    "adam": "tab:purple",
    "muon": "black",
}
DASHES = {"hessian": "--", "empirical-fisher": ":"}
SHOWN = 3  # runs of a series at most: twenty would hide each other
AXES = {"seconds": "seconds", "passes": "passes over the training samples"}
PARTS = {
    "gradient": "gradient (A)",
    "preconditioner": "Kronecker factors (A)",
    "products": "basis: products (B)",
    "algebra": "basis: algebra, and the rest",
    "search": "search (C)",
}


def draw(runs_of_row: dict[str, list[Run]], folder: Path) -> list[Path]:
    """One figure per row, and one of the cost's parts where runs were profiled."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [
        convergence(rows(runs[0]["config"]["small"])[name], runs, folder / f"{name}.svg")
        for name, runs in runs_of_row.items()
    ]
    both = pre_training(runs_of_row, folder / "pre-training.svg")
    drawn += [both] if both else []
    profiled = [run for runs in runs_of_row.values() for run in runs if "shares" in run]
    return [*drawn, *([cost(profiled, folder / "cost.svg")] if profiled else [])]


def convergence(row: Row, runs: list[Run], path: Path) -> Path:
    """Training error (lines; CV error pale) against seconds and passes."""
    plt = pyplot()
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True, layout="constrained")
    for panel, (column, label) in zip(panels, AXES.items(), strict=True):
        for series in best_series(runs):
            _plot(panel, series, column)
        panel.set(xlabel=label)
        _scale_errors(panel, row)
        panel.grid(alpha=0.3)
    panels[1].set_xscale("log")
    unit = row.task.unit and f" in {row.task.unit}"
    panels[0].set_ylabel(f"training error{unit} (pale: CV error)")
    panels[0].legend(fontsize="small")
    figure.suptitle(row.title)
    return saved(plt, figure, path)


def _scale_errors(panel: Any, row: Row) -> None:
    """Logarithmic; percentages, which come to zero, linear below a tenth."""
    if row.outputs is None:
        panel.set_yscale("log")
    else:
        panel.set_yscale("symlog", linthresh=0.1)
        panel.set_ylim(bottom=0)


def _plot(panel: Any, series: Series, column: str) -> None:
    config = series.config
    usual = "-." if config["held_out"] == 0 else "-"
    look = {
        "color": COLOURS[config["method"]],
        "linestyle": DASHES.get(config["curvature"], usual),
    }
    for i, run in enumerate(list(series.runs.values())[:SHOWN]):
        trace = run["trace"]
        label = series.name if i == 0 else None
        # The first point is the start, whose error would set the scale of the figure.
        panel.plot(trace[column][1:], trace["train"][1:], label=label, **look)
        panel.plot(trace[column][1:], trace["test"][1:], alpha=0.25, linewidth=0.8, **look)


def pre_training(runs_of_row: dict[str, list[Run]], path: Path) -> Path | None:
    """CV errors from both starts, for each method that has runs from both; None without any."""
    shown = both_starts(runs_of_row)
    if not shown:
        return None
    plt = pyplot()
    figure, panels = plt.subplots(
        1, len(shown), figsize=(4 * len(shown), 3.6), layout="constrained", squeeze=False
    )
    for panel, (name, found) in zip(panels[0], shown.items(), strict=True):
        row = rows(runs_of_row[name][0]["config"]["small"])[name]
        for method, errors in found.items():
            panel.plot([0, 1], errors, marker="o", color=COLOURS[method], label=METHODS[method])
            panel.annotate(f"{errors[1]:.3g}", (1, errors[1]), xytext=(6, 0), **LABEL)
            panel.annotate(f"{errors[0]:.3g}", (0, errors[0]), xytext=(-30, 0), **LABEL)
        panel.set(title=row.title, yscale="log", xlim=(-0.5, 1.5))
        panel.set_xticks([0, 1], ["random", "pre-trained"])
        panel.set_ylabel(f"CV error {row.task.unit}".strip())
    panels[0][-1].legend(fontsize="small")
    return saved(plt, figure, path)


def both_starts(runs_of_row: dict[str, list[Run]]) -> dict[str, dict[str, tuple[float, float]]]:
    """The rows that have runs from both starts, with the CV errors of each method."""
    pairs = [(name[: -len("-pt")], name) for name in runs_of_row if name.endswith("-pt")]
    pairs = [(plain, trained) for plain, trained in pairs if plain in runs_of_row]
    shown = {plain: starts(runs_of_row[plain], runs_of_row[trained]) for plain, trained in pairs}
    return {name: found for name, found in shown.items() if found}


LABEL: dict[str, Any] = {"textcoords": "offset points", "fontsize": "x-small", "va": "center"}
METHODS = {"nag": "SGD with momentum", "ncg": "conjugate gradients", "hf": "HF", "ksd": "KSD"}


def starts(plain: list[Run], trained: list[Run]) -> dict[str, tuple[float, float]]:
    """The mean CV errors of the methods of the paper's sentence, from both starts."""
    found = [by_method(runs) for runs in (plain, trained)]
    return {
        method: tuple(fmean(both[method].at_stop("test").values()) for both in found)
        for method in METHODS
        if all(method in both for both in found)
    }


def cost(runs: list[Run], path: Path) -> Path:
    """The share of each part in the seconds of profiled runs."""
    plt = pyplot()
    figure, panel = plt.subplots(figsize=(8, 0.6 * len(runs) + 1.6), layout="constrained")
    names = [f"{run['title']}: {Series({0: run}).name}\n{run['hardware']}" for run in runs]
    begins = [0.0] * len(runs)
    for part, label in PARTS.items():
        shares = [100 * run["shares"].get(part, 0) / sum(run["shares"].values()) for run in runs]
        panel.barh(range(len(runs)), shares, left=begins, label=label)
        begins = [begin + share for begin, share in zip(begins, shares, strict=True)]
    panel.set(xlabel="share of the seconds (%)", xlim=(0, 100))
    panel.set_yticks(range(len(runs)), names)
    figure.legend(loc="outside lower center", ncols=len(PARTS), fontsize="small")
    return saved(plt, figure, path)
