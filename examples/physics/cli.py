"""The command line: run, all, table, figures."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from examples.harness.progress_bar import bar
from examples.harness.store import Run
from examples.physics.experiments import EXPERIMENTS
from examples.physics.figures import draw
from examples.physics.methods import METHODS
from examples.physics.run_config import (
    Config,
    WrongCall,
    configurations,
    default_folder,
    store_of,
)
from examples.physics.seed_series import load_runs
from examples.physics.table import table
from examples.physics.training_run import hardware_of, perform

SECONDS, SMALL_SECONDS = 60.0, 2.0  # of a run, where not given
STARTING = 25.0  # seconds of a process besides its run, at most, as a rule: imports, errors


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the arguments name."""
    args = parser().parse_args(arguments)
    try:
        args.command(args)
    except WrongCall as error:  # the message says all; a traceback would hide it
        raise SystemExit(str(error)) from None


def parser() -> argparse.ArgumentParser:
    """All commands and their arguments."""
    root = argparse.ArgumentParser(prog="python -m examples.physics", description=__doc__)
    commands = root.add_subparsers(required=True)
    one = commands.add_parser("run", help="one run, which is added to the results")
    one.set_defaults(command=run_one)
    one.add_argument("problem", choices=EXPERIMENTS, metavar="problem", help=", ".join(EXPERIMENTS))
    one.add_argument("--method", default="ksd", choices=METHODS)
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--dtype", default="float64", choices=("float64", "float32"))
    many = commands.add_parser("all", help="many runs, a process each, those left out that exist")
    many.set_defaults(command=run_all)
    many.add_argument("--problems", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    many.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    many.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    many.add_argument("--dtypes", nargs="+", default=["float64"], choices=("float64", "float32"))
    many.add_argument("--budget", type=float, help="seconds that all of it may take")
    for command in (one, many):
        add_how_to_run(command)
    add_shown(commands)
    return root


def add_how_to_run(command: argparse.ArgumentParser) -> None:
    """Limits, size, place."""
    given = f"of each run; {SECONDS:g}, or {SMALL_SECONDS:g} for small ones, where not given"
    command.add_argument("--seconds", type=float, help=given)
    command.add_argument("--passes", type=float, help="end also after so many over the points")
    command.add_argument("--small", action="store_true", help="a form for two cores")
    command.add_argument("--options", type=json_object, default={}, help="JSON, for the method")
    command.add_argument("--device", type=torch.device, default=default_device())
    command.add_argument("--results", type=Path, help="a folder, which runs are added to")
    command.add_argument("--commit", help="where git does not know it")


def add_shown(commands: Any) -> None:
    """What is made of runs."""
    shown = argparse.ArgumentParser(add_help=False)
    shown.add_argument("--results", type=Path, help="a folder of runs")
    shown.add_argument("--small", action="store_true", help="that of the small runs")
    written = commands.add_parser("table", parents=[shown], help="errors, beside published ones")
    written.set_defaults(command=write_table)
    written.add_argument("--out", type=Path, help="printed where not given")
    drawn = commands.add_parser("figures", parents=[shown], help="errors and solutions")
    drawn.set_defaults(command=draw_figures)
    drawn.add_argument("--out", type=Path, help="a folder; RESULTS/figures where not given")


def run_one(args: argparse.Namespace) -> None:
    """Train once, unless that has been done."""
    config = Config(
        args.problem, args.method, args.seed, seconds_of(args), args.dtype, **same_for_all(args)
    )
    store = store_of(config.problem, folder_of(args))
    if config.found_in(store, hardware_of(args.device)):
        print(f"there already: {config}", flush=True)
        return
    if args.device.type == "cpu":
        torch.set_num_threads(1)  # as the clock adds up the seconds of all threads
    with bar(str(config), config.seconds) as show:
        run = perform(config, args.device, args.commit, show)
    store.add(run)
    print(summary(config, run), flush=True)


def run_all(args: argparse.Namespace) -> None:
    """What is not there yet, one process after another, as long as the budget lasts."""
    began, budget = time.monotonic(), args.budget or float("inf")
    if budget < seconds_of(args) + STARTING:
        raise WrongCall(
            f"--budget {budget:g}: a run of {seconds_of(args):g} s takes up to {STARTING:g} s more "
            f"to start and end; expected at least {seconds_of(args) + STARTING:g}"
        )
    missing = list(missing_runs(args))
    for done, config in enumerate(missing):
        left = budget - (time.monotonic() - began)
        if left < config.seconds + STARTING:
            print(f"{len(missing) - done} runs are left for another call", flush=True)
            return
        run_in_process(config, args, left)
    print("all runs are there", flush=True)


def missing_runs(args: argparse.Namespace) -> Iterator[Config]:
    """Those that were asked for and are not in the results."""
    hardware, folder = hardware_of(args.device), folder_of(args)
    same = {"seconds": seconds_of(args), **same_for_all(args)}
    for config in configurations(args.problems, args.methods, args.seeds, args.dtypes, **same):
        if not config.found_in(store_of(config.problem, folder), hardware):
            yield config


def run_in_process(config: Config, args: argparse.Namespace, left: float) -> None:
    """A process of its own: what a run leaves in memory changes no other one's."""
    command = [sys.executable, "-m", "examples.physics", "run", config.problem]
    command += ["--method", config.method, "--seed", str(config.seed), "--dtype", config.dtype]
    command += ["--seconds", str(config.seconds), "--options", json.dumps(config.options)]
    command += ["--device", str(args.device), "--results", str(folder_of(args))]
    command += ["--passes", str(config.passes)] if config.passes else []
    command += ["--small"] if config.small else []
    command += ["--commit", args.commit] if args.commit else []
    try:
        ended = subprocess.run(command, timeout=left if left < float("inf") else None, check=False)
    except subprocess.TimeoutExpired:
        print(f"not finished in the budget: {config}", flush=True)
        return
    if ended.returncode:
        print(f"failed: {config}", flush=True)


def write_table(args: argparse.Namespace) -> None:
    """Print the table, or write it to a file."""
    text = table(load_runs(folder_of(args)))
    if args.out is None:
        print(text)
    else:
        args.out.write_text(text + "\n")


def draw_figures(args: argparse.Namespace) -> None:
    """Draw all figures that there are runs for."""
    folder = folder_of(args)
    for path in draw(load_runs(folder), args.out or folder / "figures"):
        print(path)


def json_object(text: str) -> dict[str, Any]:
    """What --options holds."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f'{text!r}: expected an object, as {{"krylov_dim": 50}}')
    return value


def same_for_all(args: argparse.Namespace) -> dict[str, Any]:
    """What runs of one call have in common, besides their seconds."""
    return {"passes": args.passes, "options": args.options, "small": args.small}


def folder_of(args: argparse.Namespace) -> Path:
    """The results' folder."""
    return args.results or default_folder(args.small)


def seconds_of(args: argparse.Namespace) -> float:
    """Of each run."""
    return args.seconds if args.seconds is not None else SMALL_SECONDS if args.small else SECONDS


def default_device() -> str:
    """The GPU, where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def summary(config: Config, run: Run) -> str:
    """How a run ended, in one line."""
    last = {name: column[-1] for name, column in run["trace"].items()}
    spent = f"{last['seconds']:.1f} s, {last['iterations']} iterations"
    return f"{config}: loss {last['loss']:.3g}, error {last['error']:.3g} ({spent})"
