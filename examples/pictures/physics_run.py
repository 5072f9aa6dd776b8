"""A physics-informed net: KSD and L-BFGS for equal seconds, from examples/physics/results."""

from __future__ import annotations

from pathlib import Path

from examples.harness.store import Run
from examples.physics.experiments import EXPERIMENTS
from examples.physics.run_config import RESULTS
from examples.physics.seed_series import Case, Series, by_case, load_runs
from examples.pictures.curve_picture import Curve, Picture

NAMES = {"ksd": "KSD", "lbfgs": "L-BFGS", "adam-lbfgs": "L-BFGS after Adam"}
PROBLEM = "poisson-9873"


def picture(folder: Path = RESULTS) -> Picture:
    """The median run of each method."""
    case, runs = compared(folder)
    one = next(iter(runs.values()))
    ends = {name: run["trace"]["error"][-1] for name, run in runs.items()}
    errors = ", ".join(f"{name} {_digits(end)}" for name, end in ends.items())
    machine = "one GPU" if on_a_gpu(case) else "one core"
    experiment = EXPERIMENTS[case.problem]
    parameters = int(case.problem.split("-")[1])
    return Picture(
        name="physics-informed-net",
        heading="A physics-informed net",
        title=experiment.title,
        axis=experiment.measure,
        curves=[_curve(name, run) for name, run in runs.items()],
        sentence=f"A tanh net of {parameters:,} parameters. Error after {case.seconds:g} seconds "
        f"on {machine}: {errors}.",
        origin=f"{case.hardware}, {one['date']}, commit {one['commit']}",
        source=folder / f"{case.problem}.json",
    )


def compared(folder: Path) -> tuple[Case, dict[str, Run]]:
    """The case to show: of those with all methods, a GPU before a CPU, then the most seconds."""
    cases = {
        case: {NAMES[s.method]: _median(s) for s in series if s.method in NAMES and not s.options}
        for case, series in by_case(load_runs(folder)).items()
        if (case.dtype, case.small) == ("float64", False) and case.problem == PROBLEM
    }
    whole = [case for case, runs in cases.items() if len(runs) == len(NAMES)]
    shown = max(whole, key=lambda case: (on_a_gpu(case), case.seconds))
    return shown, cases[shown]


def on_a_gpu(case: Case) -> bool:
    """By the name that the runs have of their machine."""
    return "cores" not in case.hardware


def _median(series: Series) -> Run:
    ordered = sorted(series.runs.values(), key=lambda run: run["trace"]["error"][-1])
    return ordered[(len(ordered) - 1) // 2]


def _curve(name: str, run: Run) -> Curve:
    seconds, errors = run["trace"]["seconds"], run["trace"]["error"]
    return Curve(name, seconds, errors, _digits(errors[-1]))


def _digits(error: float) -> str:
    """1.2e-3."""
    return f"{error:.1e}".replace("e-0", "e-")
