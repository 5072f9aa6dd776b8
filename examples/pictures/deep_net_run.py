"""A deep net: KSD, HF and others for equal seconds, from examples/paper/results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from examples.harness.store import Run
from examples.paper.seed_series import best_series, load_runs
from examples.pictures.curve_picture import ROOT, Curve, Picture

RESULTS = ROOT / "examples/paper/results"
SECONDS = 60.0
NAMES = {"ksd": "KSD", "hf": "HF", "adam": "Adam", "torch-lbfgs": "L-BFGS"}


def picture() -> Picture:
    """MNIST's auto-encoder with all its training samples, the first seed of each method."""
    runs_of_row = [run for run in load_runs(RESULTS)["mnist-ae"] if _counts(run["config"])]
    found = {series.config["method"]: series for series in best_series(runs_of_row)}
    runs = {NAMES[method]: found[method].runs[0] for method in NAMES}
    ends = {name: run["trace"]["train"][-1] for name, run in runs.items()}
    one = runs["KSD"]
    errors = ", ".join(f"{name} {_digits(end)}" for name, end in ends.items())
    return Picture(
        name="deep-net",
        heading="A deep net",
        title="Auto-encoder of MNIST, 8 layers",
        axis="training error",
        curves=[_curve(name, run) for name, run in runs.items()],
        sentence="2.8 million parameters. Training error after "
        f"{SECONDS:g} seconds on one GPU: {errors}.",
        origin=f"{one['hardware']}, {_all(runs.values(), 'date')}, commit "
        f"{_all(runs.values(), 'commit')}, seed 0",
        source=RESULTS / "mnist-ae.json",
        limits={"ylim": (0.5, 200)},
    )


def _counts(config: dict[str, Any]) -> bool:
    """Whether a run has all samples, the same seconds as the others, and the usual curvature."""
    usual = config["curvature"] in (None, "gauss-newton")
    return usual and config["held_out"] == 0 and config["seconds"] == SECONDS


def _digits(error: float) -> str:
    return f"{error:.2f}" if error < 10 else f"{error:.0f}"


def _all(runs: Sequence[Run], key: str) -> str:
    return ", ".join(sorted({run[key] for run in runs}))


def _curve(name: str, run: Run) -> Curve:
    trace = run["trace"]
    # The first point is the start, whose error would set the scale.
    return Curve(name, trace["seconds"][1:], trace["train"][1:], _digits(trace["train"][-1]))
