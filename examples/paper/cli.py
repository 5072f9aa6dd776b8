"""The command line: run, table, figures, prepare."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import torch

from examples.data.data_files import MissingData
from examples.harness.net_training.training import release_memory
from examples.harness.net_training.training_methods import METHODS
from examples.harness.progress_bar import bar
from examples.harness.store import Run, Store
from examples.paper.figures import draw
from examples.paper.prepare_data import prepare
from examples.paper.published_rows import ROWS
from examples.paper.run_config import Config, rows
from examples.paper.seed_series import IDENTITY, load_runs
from examples.paper.table2 import table
from examples.paper.training_run import perform

RESULTS = Path(__file__).parent / "results"
SMALL_PASSES = 200.0  # of a small run, where not given: a result that no clock decides
CURVATURES = ("gauss-newton", "hessian", "empirical-fisher")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the arguments name."""
    args = parser().parse_args(arguments)
    try:
        args.command(args)
    except MissingData as error:  # the message says all; a traceback would hide it
        raise SystemExit(str(error)) from None


def parser() -> argparse.ArgumentParser:
    """All commands and their arguments."""
    root = argparse.ArgumentParser(prog="python -m examples.paper", description=__doc__)
    commands = root.add_subparsers(required=True)
    run = commands.add_parser("run", help="train, and add to the results")
    run.set_defaults(command=run_all)
    add_what_to_run(run)
    add_how_to_run(run)
    shown = argparse.ArgumentParser(add_help=False)
    shown.add_argument("--results", type=Path, default=RESULTS, help="a folder of runs")
    written = commands.add_parser("table", parents=[shown], help="the paper's Table 2 beside ours")
    written.set_defaults(command=write_table)
    written.add_argument("--out", type=Path, help="printed where not given")
    drawn = commands.add_parser("figures", parents=[shown], help="convergence and cost")
    drawn.set_defaults(command=draw_figures)
    drawn.add_argument("--out", type=Path, help="a folder; RESULTS/figures where not given")
    prepared = commands.add_parser("prepare", help="a data folder for a machine without network")
    prepared.set_defaults(command=lambda args: prepare(args.cache))
    prepared.add_argument("--cache", type=Path, required=True, help="the folder to write")
    return root


def add_what_to_run(run: argparse.ArgumentParser) -> None:
    """Rows and methods, and the settings of a run."""
    method_help = ", ".join(METHODS)
    known, every = [*METHODS, "all"], {"nargs": "+", "default": ["ksd"], "metavar": "METHOD"}
    known_rows = rows(small=False)
    run.add_argument(
        "rows", nargs="+", choices=[*known_rows, "all"], metavar="row", help=", ".join(known_rows)
    )
    run.add_argument("--method", choices=known, help=method_help, **every)
    run.add_argument("--seed", nargs="+", type=int, default=[0])
    run.add_argument("--curvature", nargs="+", choices=CURVATURES, default=["gauss-newton"])
    run.add_argument("--l2", nargs="+", type=float, help="the row's own where not given")
    run.add_argument("--rate", nargs="+", type=float, help="the method's grid where not given")
    run.add_argument("--precision", choices=("highest", "high"), help="the method's own by default")
    run.add_argument("--held-out", type=int, help="so many samples instead; 0: train on all")
    run.add_argument("--code", type=int, help="units of the code layer")
    run.add_argument("--options", type=json_object, default={}, help="JSON, for the method")


def add_how_to_run(run: argparse.ArgumentParser) -> None:
    """Limits, size, place."""
    small = f"on small stand-ins, off line, {SMALL_PASSES:g} passes"
    out = "where runs are added; results/ROW.json where not given"
    run.add_argument("--seconds", type=float, default=60.0)
    run.add_argument("--passes", type=float, help="end also after so many passes over the data")
    run.add_argument("--profile", action="store_true", help="time the parts of KSD's or HF's cost")
    run.add_argument("--small", action="store_true", help=small)
    run.add_argument("--out", type=Path, help=out)
    run.add_argument("--device", type=torch.device, default=default_device())
    run.add_argument("--commit", help="where git does not know it")


def run_all(args: argparse.Namespace) -> None:
    """Every combination of what was given several times."""
    for name in ROWS if "all" in args.rows else args.rows:
        store = Store(args.out or default_out(name, args.small), IDENTITY)
        for config in configurations(name, args):
            if any(run["config"] == asdict(config) for run in store.runs):
                print(f"there already: {config}", flush=True)
                continue
            with bar(str(config), config.seconds) as show:
                run = perform(config, args.device, args.commit, show)
            release_memory(args.device)
            store.add(run)
            print(summary(config, run), flush=True)


def write_table(args: argparse.Namespace) -> None:
    """Print the table, or write it to a file."""
    text = table(load_runs(args.results))
    if args.out is None:
        print(text)
    else:
        args.out.write_text(text)


def draw_figures(args: argparse.Namespace) -> None:
    """Draw all figures that there are runs for."""
    for path in draw(load_runs(args.results), args.out or args.results / "figures"):
        print(path)


def configurations(name: str, args: argparse.Namespace) -> Iterator[Config]:
    """What to run of one row."""
    row = rows(args.small)[name]
    methods = METHODS if "all" in args.method else args.method
    passes = SMALL_PASSES if args.small and args.passes is None else args.passes
    for chosen, seed, l2 in product(methods, args.seed, args.l2 or [row.l2]):
        method = METHODS[chosen]
        rates = (args.rate or method.rates[row.task.name]) if method.rates else [None]
        curvatures = args.curvature if method.has_curvature else [None]
        for curvature, rate in product(curvatures, rates):
            yield Config(
                row=name,
                method=chosen,
                seed=seed,
                seconds=args.seconds,
                l2=l2,
                precision=args.precision or method.precision_on(args.device),
                curvature=curvature,
                rate=rate,
                passes=passes,
                held_out=args.held_out,
                code=args.code,
                options=args.options,
                profile=args.profile and method.has_curvature,
                small=args.small,
            )


def json_object(text: str) -> dict[str, Any]:
    """What --options holds."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f'{text!r}: expected an object, as {{"batch": 100}}')
    return value


def default_out(name: str, small: bool) -> Path:
    """Runs of small rows are not kept beside the others."""
    return RESULTS / ("small" if small else "") / f"{name}.json"


def default_device() -> str:
    """The GPU, where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def summary(config: Config, run: Run) -> str:
    """How a run ended, in one line."""
    last = {name: column[-1] for name, column in run["trace"].items()}
    unit = rows(config.small)[config.row].task.unit
    names = ("train", "held_out", "test")
    errors = [f"{name} {last[name]:.4g}{unit}" for name in names if name in last]
    spent = f"{last['seconds']:.1f} s, {last['passes']:.0f} passes, {last['iterations']} iterations"
    return f"{config}: value {last['value']:.5g}, {', '.join(errors)} ({spent})"
