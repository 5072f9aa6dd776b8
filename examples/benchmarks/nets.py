"""Nets of other kinds than the paper's, by the same methods, at equal seconds.

Convolutions, a residual net with layer norm, a recurrent net and a transformer classify 10,000
images of MNIST; mean cross-entropy + 1e-4 / 2 |x|^2, torch's own start. KSD has its defaults, HF
what examples/paper gives it for classifiers, Adam two rates. From the root of the repository, with
KSDMIN_DATA as for examples/paper:

    python -m examples.benchmarks.nets run convolutional residual lstm transformer --out nets.json
    python -m examples.benchmarks.nets table nets.json
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from examples.benchmarks.image_nets import NETS
from examples.data import mnist
from examples.harness.net_training.method_interface import Settings
from examples.harness.net_training.point_recorder import PointRecorder
from examples.harness.net_training.tasks import CLASSIFICATION
from examples.harness.net_training.training import DeviceData, Training, load_libraries
from examples.harness.net_training.training_methods import METHODS
from examples.harness.provenance import provenance
from examples.harness.store import Run, Store
from examples.harness.tables import markdown, origins, row

SAMPLES, L2 = 10_000, 1e-4
RUNS = [("ksd", None), ("hf", None), ("torch-lbfgs", None), ("adam", 1e-3), ("adam", 3e-3)]
LATE = 1.05  # of a share of the time: a point that is kept so soon after it counts as of it
IDENTITY = ("net", "method", "rate", "seconds", "hardware")
HEADER = ("net", "method", "value at 1/8", "1/4", "1/2", "the whole time", "test error")


def images(device: torch.device) -> DeviceData:
    """What all runs share."""
    splits = mnist.load_digits().holding_out(0)
    return DeviceData.of(replace(splits, train=splits.train[:SAMPLES]), device)


def perform(net: str, method: str, rate: float | None, seconds: float, data: DeviceData) -> Run:
    """One run, as it is stored."""
    torch.manual_seed(0)
    device = data.train.inputs.device
    training = Training(NETS[net]().to(device), CLASSIFICATION, data, L2, seed=0)
    load_libraries(training)
    recorder = PointRecorder(seconds)
    precision = METHODS[method].precision_on(device)
    # K and HF's share and lambda as examples/paper has them for classifiers
    settings = Settings("gauss-newton", precision, 20, 1 / 8, 1.0, rate)
    outcome = METHODS[method].train(training, recorder, settings)
    return {
        "net": net,
        "method": method,
        "rate": rate,
        "seconds": seconds,
        **provenance("torch", hardware=training.hardware),
        "message": outcome.message,
        "trace": recorder.trace(training.assess),
    }


def run(arguments: argparse.Namespace) -> None:
    """Add the runs to the file, one by one."""
    torch.set_num_threads(arguments.threads)
    store, data = Store(arguments.out, IDENTITY), images(torch.device(arguments.device))
    for net in arguments.nets:
        for method, rate in RUNS:
            done = perform(net, method, rate, arguments.seconds, data)
            store.add(done)
            print(row(cells_of(done)), flush=True)


def cells_of(run: Run) -> list[str]:
    """The least value by an eighth, a quarter, a half and the whole of the time; the error then."""
    trace, cells = run["trace"], []
    for share in (1 / 8, 1 / 4, 1 / 2, 1):
        points = sum(seconds <= LATE * share * run["seconds"] for seconds in trace["seconds"])
        cells.append(f"{min(trace['value'][:points]):.3g}")
    rate = "" if run["rate"] is None else f", rate {run['rate']:g}"
    cells.append(f"{trace['test'][points - 1]:.3g}%")
    return [run["net"], f"{run['method']}{rate}", *cells]


def table(arguments: argparse.Namespace) -> None:
    """All runs of the files, in Markdown."""
    runs = [run for path in arguments.files for run in Store(path, IDENTITY).runs]
    print(markdown(HEADER, map(cells_of, runs)))
    print(f"\nMeasured on {origins(runs, '{hardware}, {date}, {commit}, {seconds:g} s')}.")


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run", help="run the methods on some nets")
    runs.add_argument("nets", nargs="+", choices=NETS)
    runs.add_argument("--seconds", type=float, default=60.0)
    runs.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    runs.add_argument("--threads", type=int, default=1, help="on a CPU")
    runs.add_argument("--out", type=Path, required=True, help="JSON, which runs are added to")
    runs.set_defaults(act=run)
    tables = commands.add_parser("table", help="a table in Markdown")
    tables.add_argument("files", nargs="+", type=Path)
    tables.set_defaults(act=table)
    arguments = parser.parse_args(given)
    arguments.act(arguments)


if __name__ == "__main__":
    main()
