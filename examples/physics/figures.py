"""Figures of the stored runs: error against seconds, and the solutions with their errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from examples.harness.drawing import pyplot, saved
from examples.harness.store import Run
from examples.physics.experiment import Setting, picture_grid
from examples.physics.experiments import EXPERIMENTS
from examples.physics.methods import NAMES
from examples.physics.seed_series import Case, Series, by_case

COLOURS = {
    "ksd": "tab:blue",
    "hf": "tab:red",
    "lbfgs": "tab:olive",
    "adam-lbfgs": "tab:purple",
    "bfgs": "tab:green",
    "lbfgsb": "tab:brown",
    "lm": "tab:orange",
}
PANEL = (4.4, 3.4)  # inches
COLUMNS = 3
ROUNDING = 1e-17  # errors below are none


def draw(runs: list[Run], folder: Path) -> list[Path]:
    """The errors of all cases, and a picture of each solution that runs have one of."""
    folder.mkdir(parents=True, exist_ok=True)
    cases = by_case(runs)
    drawn = [errors(cases, folder / "errors.svg")]
    for case, series in cases.items():
        pictured = {s.method: run for s in series for run in _pictured(s)}
        if pictured:
            name = f"{case.problem}-{case.dtype}-{case.seconds:g}s.png"
            drawn.append(solutions(case, pictured, folder / name))
    return drawn


def _pictured(series: Series) -> list[Run]:
    plain = not series.options
    return [run for run in series.runs.values() if plain and "picture" in run]


def errors(cases: dict[Case, list[Series]], path: Path) -> Path:
    """One panel a case: every run of every method."""
    plt = pyplot()
    columns = min(COLUMNS, len(cases))
    rows = -(-len(cases) // columns)
    size = (PANEL[0] * columns, PANEL[1] * rows)
    figure, panels = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for panel, (case, series) in zip(panels.flat, cases.items(), strict=False):
        _plot_errors(panel, case, series)
    for panel in list(panels.flat)[len(cases) :]:
        panel.remove()
    labels = {label: line for panel in panels.flat for line, label in _legend(panel)}
    figure.legend(labels.values(), labels, loc="outside lower center", ncols=4, fontsize="small")
    return saved(plt, figure, path)


def _plot_errors(panel: Any, case: Case, series: list[Series]) -> None:
    for one in series:
        for i, run in enumerate(one.runs.values()):
            label = f"{NAMES[one.method]}{one.options}" if i == 0 else None
            style = "--" if one.options else "-"
            trace = run["trace"]
            look = {"color": COLOURS[one.method], "linestyle": style, "linewidth": 1}
            panel.plot(trace["seconds"], trace["error"], label=label, **look)
    experiment = EXPERIMENTS[case.problem]
    small = " (small)" if case.small else ""
    panel.set(yscale="log", xlabel="seconds", ylabel=experiment.measure)
    panel.set_title(f"{experiment.title}{small}, {case.dtype}", fontsize="medium")
    panel.grid(alpha=0.3)


def _legend(panel: Any) -> Any:
    return zip(*panel.get_legend_handles_labels(), strict=True)


def solutions(case: Case, pictured: dict[str, Run], path: Path) -> Path:
    """The solution, and the error of each method's net, on the same scale of powers of ten."""
    plt = pyplot()
    seed = next(iter(pictured.values()))["config"]["seed"]
    setting = EXPERIMENTS[case.problem].make(seed, case.small)
    count = 1 + len(pictured)
    figure, panels = plt.subplots(
        1, count, figsize=(3.2 * count, 3), layout="constrained", squeeze=False
    )
    exact = setting.exact(picture_grid(setting)).flatten().numpy()
    _picture(plt, panels[0, 0], setting, exact, "the solution", None)
    found = {name: np.abs(run["picture"]) for name, run in pictured.items()}
    limits = _decades(list(found.values()))
    for panel, (name, values) in zip(panels[0, 1:], found.items(), strict=True):
        _picture(plt, panel, setting, values, f"error, {NAMES[name]}", limits)
    axes = EXPERIMENTS[case.problem].axes
    for panel in panels[0]:
        panel.set_xlabel(axes[0])
    panels[0, 0].set_ylabel(axes[1] if len(axes) > 1 else "")
    figure.suptitle(f"{EXPERIMENTS[case.problem].title}, {case.dtype}, {case.seconds:g} s")
    return saved(plt, figure, path)


def _decades(errors: list[np.ndarray]) -> tuple[float, float]:
    """From the least median of a method to the largest error."""
    low = min(max(float(np.median(e)), ROUNDING) for e in errors)
    high = max(max(float(e.max()), 10 * ROUNDING) for e in errors)
    return 10.0 ** np.floor(np.log10(low)), 10.0 ** np.ceil(np.log10(high) + 1e-9)


def _picture(
    plt: Any,
    panel: Any,
    setting: Setting,
    values: np.ndarray,
    title: str,
    limits: tuple[float, float] | None,
) -> None:
    panel.set_title(title, fontsize="small")
    x = picture_grid(setting).numpy()
    if x.shape[1] == 1:
        panel.plot(x[:, 0], values, linewidth=1)
        if limits is not None:
            panel.set(yscale="log", ylim=limits)
        return
    side = round(len(values) ** 0.5)
    shaped = [column.reshape(side, side) for column in (x[:, 0], x[:, 1], values)]
    from matplotlib.colors import LogNorm

    look = {"cmap": "RdBu_r"} if limits is None else {"norm": LogNorm(*limits), "cmap": "magma"}
    mesh = panel.pcolormesh(*shaped, shading="gouraud", **look)
    plt.colorbar(mesh, ax=panel)
