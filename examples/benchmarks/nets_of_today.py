"""Nets of today by KSD, HF, L-BFGS, Adam and Muon, for equal seconds.

Convolutions, a character transformer, a perceptron, an LSTM, a residual net, a transformer over
patches, and a U-net that was set aside; float32 with TF32, torch's own start. KSD has its defaults,
L-BFGS 100 pairs and a strong Wolfe search, Adam and Muon batches of 128, rates that fall along a
cosine to zero at the end of the time, and steps that are captured CUDA graphs. From the root of the
repository, with KSDMIN_DATA as for examples/paper:

    python -m examples.benchmarks.nets_of_today run conv causal --out runs.json
    python -m examples.benchmarks.nets_of_today table runs.json

Every run is written when it ends; one that is there already is not repeated.
"""

from __future__ import annotations

import argparse
import platform
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from examples.benchmarks.net_suite import time_tables
from examples.benchmarks.net_suite.experiments import EXPERIMENTS, RATES, VARIANTS, planned
from examples.harness.net_training.method_interface import Settings
from examples.harness.net_training.point_recorder import PointRecorder
from examples.harness.net_training.training import (
    DeviceData,
    Training,
    load_libraries,
    release_memory,
)
from examples.harness.net_training.training_methods import METHODS
from examples.harness.provenance import provenance
from examples.harness.store import Run, Store

IDENTITY = ("net", "method", "rate", "seed", "seconds", "samples", "precision", "hardware")
AROUND = 2.0  # seconds that a run takes beside its own: set-up, and the errors of its points


def data_of(net: str, samples: int | None, device: torch.device) -> DeviceData:
    """The samples of a net, or the first ones of each part."""
    splits = EXPERIMENTS[net].samples()
    if samples is not None:
        parts = (splits.train[:samples], splits.test[:samples], splits.held_out[:samples])
        splits = replace(splits, train=parts[0], test=parts[1], held_out=parts[2])
    return DeviceData.of(splits, device)


def training_of(net: str, seed: int, data: DeviceData) -> Training:
    """Where a run starts."""
    experiment = EXPERIMENTS[net]
    torch.manual_seed(seed)
    made = experiment.net().to(data.train.inputs.device)
    return Training(made, experiment.task, data, experiment.l2, seed)


@torch.no_grad()
def assess(training: Training, x: Tensor) -> dict[str, float]:
    """The losses, and the error on the test samples; no part of any clock."""
    x, data = training.load(x), training.data
    train = training.mean(data.train)[0]
    return {
        "value": train + training.penalty(x),
        "train": train,
        "validation": training.mean(data.held_out)[0],
        "error": training.mean(data.test)[1],
    }


def perform(training: Training, method: str, rate: float | None, seconds: float, prec: str) -> Run:
    """One run: how it went."""
    variant, recorder = VARIANTS[method], PointRecorder(seconds)
    # K (of ksd-paper alone), HF's share and its first damping: examples/paper's, for classifiers
    settings = Settings("gauss-newton", prec, 20, 1 / 8, 1.0, rate, variant.options)
    load_libraries(training)
    begin = time.perf_counter()
    outcome = METHODS[variant.method].train(training, recorder, settings)
    before = time.perf_counter() - begin - recorder.elapsed
    return {
        "message": outcome.message,
        "seconds before the clock": round(before, 3),  # a problem is made of the net
        "parameters": sum(variable.numel() for variable in training.parameters()),
        "trace": recorder.trace(partial(assess, training)),
    }


def run(arguments: argparse.Namespace) -> None:
    """Add the runs to the file, one by one, as long as there is time."""
    began, device = time.perf_counter(), torch.device(arguments.device)
    torch.set_num_threads(arguments.threads)
    precision = arguments.precision if device.type == "cuda" else "highest"
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    about = provenance("torch", hardware=hardware, commit=arguments.commit)
    about |= {"python": platform.python_version(), "precision": precision}
    store, failed, data_net, data = Store(arguments.out, IDENTITY), [], "", None
    plan = planned(arguments.nets, arguments.methods, arguments.rates, arguments.seeds)
    for net, method, rate, seed in plan:
        seconds = arguments.seconds.get(net, arguments.seconds.get("", EXPERIMENTS[net].seconds))
        if data_net != net:
            data = None  # before the next ones come
            data_net, data = net, data_of(net, arguments.samples, device)
        which = {"net": net, "method": method, "rate": rate, "seed": seed, "seconds": seconds}
        which |= {"samples": len(data.train), **about}
        if store.find(**which) is not None:
            continue
        if time.perf_counter() - began + seconds + AROUND > arguments.limit:
            print(f"no time left for {which}", flush=True)
            continue
        try:
            found = perform(training_of(net, seed, data), method, rate, seconds, precision)
        except Exception:  # the other runs can do without this one
            traceback.print_exc()
            failed.append(which)
            continue
        finally:
            release_memory(device)
        store.add({**which, **found})
        print(f"{time.perf_counter() - began:.1f} s: {line({**which, **found})}", flush=True)
    if failed:
        raise SystemExit(f"failed: {failed}")


def line(run: Run) -> str:
    """How a run ended."""
    last = {name: column[-1] for name, column in run["trace"].items()}
    losses = f"train {last['train']:.4g}, validation {last['validation']:.4g}"
    spent = f"{last['seconds']:.1f} s, {last['passes']:.0f} passes, {last['iterations']} iterations"
    return (
        f"{run['net']}, {time_tables.label(run)}, seed {run['seed']}: {losses}, "
        f"error {last['error']:.3g} ({spent}; {run['seconds before the clock']:.1f} s before)"
    )


def table(arguments: argparse.Namespace) -> None:
    """All runs of the files, in Markdown."""
    runs = [run for path in arguments.files for run in Store(path, IDENTITY).runs]
    print(time_tables.report(runs))


def seconds_of(text: str) -> tuple[str, float]:
    """'6', or 'conv=6'."""
    net, _, seconds = text.rpartition("=")
    if net and net not in EXPERIMENTS:
        raise argparse.ArgumentTypeError(f"{text!r}: {net!r} is none of {', '.join(EXPERIMENTS)}")
    return net, float(seconds)


def parser() -> argparse.ArgumentParser:
    """Both commands."""
    root = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = root.add_subparsers(required=True)
    runs = commands.add_parser("run", help="run the methods on some nets")
    given: dict[str, Any] = {"nargs": "+"}
    runs.add_argument("nets", choices=EXPERIMENTS, **given)
    usual = ["ksd", "adam", "torch-lbfgs"]
    runs.add_argument("--methods", choices=VARIANTS, default=usual, **given)
    runs.add_argument("--rates", type=float, default=RATES, help="of adam and muon", **given)
    runs.add_argument("--seeds", type=int, default=[0], **given)
    runs.add_argument(
        "--seconds",
        type=seconds_of,
        default=[],
        metavar="[NET=]SECONDS",
        help="of each run; where not given, each net's own, for a GPU",
        **given,
    )
    runs.add_argument("--limit", type=float, default=float("inf"), help="seconds of all runs")
    runs.add_argument("--samples", type=int, help="the first so many alone")
    runs.add_argument("--precision", choices=("high", "highest"), default="high", help="high: TF32")
    runs.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    runs.add_argument("--threads", type=int, default=1, help="on a CPU")
    runs.add_argument("--commit", help="where it is measured without git")
    runs.add_argument("--out", type=Path, required=True, help="JSON, which runs are added to")
    runs.set_defaults(act=run)
    tables = commands.add_parser("table", help="tables in Markdown")
    tables.add_argument("files", type=Path, **given)
    tables.set_defaults(act=table)
    return root


def main(given: Sequence[str] | None = None) -> None:
    arguments = parser().parse_args(given)
    if hasattr(arguments, "seconds"):
        arguments.seconds = dict(arguments.seconds)
    arguments.act(arguments)


if __name__ == "__main__":
    main()
