"""Nets of today: KSD, Adam and perhaps L-BFGS for equal seconds, from examples/benchmarks/results.

There are no pictures as long as there are no results of a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

from examples.benchmarks.net_suite.experiments import EXPERIMENTS
from examples.benchmarks.net_suite.time_tables import seconds_to
from examples.benchmarks.nets_of_today import IDENTITY
from examples.harness.store import Run, Store
from examples.pictures.curve_picture import ROOT, Curve, Picture

RESULTS = ROOT / "examples/benchmarks/results/nets_of_today_h200.json"
NAMES = {"ksd": "KSD", "adam": "Adam", "torch-lbfgs": "L-BFGS"}
NEEDED = {"KSD", "Adam"}  # there is no picture without both; L-BFGS is shown where it has run
# net: the name of its picture, its heading and what is over it
SHOWN = {
    "conv": ("convolutional-net", "A convolutional net", "Convolutions, 20,000 noisy digits"),
    "causal": ("character-transformer", "A transformer", "4 layers predict characters of code"),
}


def gpu_runs(path: Path = RESULTS) -> list[Run]:
    """The runs on a GPU; none where there is no file."""
    return [run for run in Store(path, IDENTITY).runs if "cores" not in run["hardware"]]


def makers(path: Path = RESULTS) -> dict[str, Callable[[], Picture]]:
    """The pictures that there are results for."""
    measured = {net for net in SHOWN if NEEDED <= compared(net, path).keys()}
    return {SHOWN[net][0]: partial(picture, net, path) for net in SHOWN if net in measured}


def compared(net: str, path: Path) -> dict[str, Run]:
    """The first seed of each method; of Adam's rates, that with the least loss at the end."""
    found: dict[str, Run] = {}
    for run in gpu_runs(path):
        if run["net"] != net or run["method"] not in NAMES or run["seed"] != 0:
            continue
        name = NAMES[run["method"]]
        if name not in found or _end(run) < _end(found[name]):
            found[name] = run
    return {name: found[name] for name in NAMES.values() if name in found}


def picture(net: str, path: Path) -> Picture:
    """One net."""
    runs = compared(net, path)
    one, level = runs["KSD"], reached(net, runs)
    name, heading, title = SHOWN[net]
    times = ", ".join(f"{name} {_when(run, level)}" for name, run in runs.items())
    return Picture(
        name=name,
        heading=heading,
        title=title,
        axis="training loss",
        curves=[_curve(name, run, level) for name, run in runs.items()],
        sentence=f"{one['parameters']:,} parameters, {one['seconds']:g} seconds on one GPU. Time "
        f"to a training loss of {level:g}: {times}.",
        origin=f"{one['hardware']}, {_all(runs, 'date')}, commit {_all(runs, 'commit')}, seed 0, "
        f"Adam's rate {runs['Adam']['rate']:g}",
        source=path,
    )


def reached(net: str, runs: dict[str, Run]) -> float:
    """The least of the levels that one of the methods reaches; or else the first."""
    levels = EXPERIMENTS[net].levels
    there = [
        level
        for level in levels
        if any(math.isfinite(seconds_to(run["trace"], level)) for run in runs.values())
    ]
    return min(there, default=levels[0])


def _end(run: Run) -> float:
    return run["trace"]["train"][-1]


def _when(run: Run, level: float) -> str:
    seconds = seconds_to(run["trace"], level)
    return f"{seconds:.1f} s" if math.isfinite(seconds) else "not reached"


def _all(runs: dict[str, Run], key: str) -> str:
    return ", ".join(sorted({run[key] for run in runs.values()}))


def _curve(name: str, run: Run, level: float) -> Curve:
    trace, seconds = run["trace"], seconds_to(run["trace"], level)
    end = f"{seconds:.1f} s to {level:g}" if math.isfinite(seconds) else f"{_end(run):.2g}"
    return Curve(name, trace["seconds"][1:], trace["train"][1:], end)
