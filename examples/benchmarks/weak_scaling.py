"""Weak scaling: each process has the same number of samples; what do more processes cost?

    python -m examples.benchmarks.weak_scaling                      # 1 and 2 processes
    python -m examples.benchmarks.weak_scaling --processes 1 2 4

Measured are the seconds of a value, a gradient, a curvature product and an evaluation in a
subspace: of the group, and of each process's own samples without the others, in turn (minima of
many). All processes compute at the same time in either case. docs/distributed.md has a model for
many GPUs, which is checked here: an evaluation takes what the samples of one process take, and its
messages.
"""

import argparse
import json
import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a core for each process

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import ksdmin
from ksdmin._problem.counting import Counts

RESULTS = Path(__file__).parent / "results" / "weak_scaling.json"
SAMPLES, FEATURES, WIDTH = 200, 100, 300  # samples of each process
BASIS = 20  # vectors of the subspace
REPEATS = 200


def fastest(actions):
    """The shortest of many times of each action, taken in turn; all processes begin together."""
    best = dict.fromkeys(actions, float("inf"))
    for _ in range(REPEATS):
        for name, action in actions.items():
            dist.barrier()
            began = time.perf_counter()
            action()
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def problem_of(rank, **arguments):
    X = torch.randn(SAMPLES, FEATURES, generator=torch.Generator().manual_seed(rank))
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(FEATURES, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(),
        nn.Linear(WIDTH, FEATURES),
    )  # fmt: skip
    return ksdmin.from_torch(net, nn.MSELoss(), (X, X), **arguments)


def evaluations(problem):
    """What a run asks of a problem, on all samples."""
    x, whole = problem.x0, slice(None)
    product, V = problem.curvature(x, whole), torch.randn(BASIS, x.numel())
    return {
        "value": lambda: problem.value(x, whole),
        "gradient": lambda: problem.value_and_gradient(x, whole),
        "product": lambda: product(x),
        "search": lambda: problem.value_and_projected_gradient(x, whole, V),
    }


def messages(n):
    """An all-reduce as long as the parameters, and one as long as what a search sends."""
    long, short = torch.zeros(n + 2), torch.zeros(BASIS + 2, dtype=torch.float64)
    return {
        "long message": lambda: dist.all_reduce(long),
        "short message": lambda: dist.all_reduce(short),
    }


def sent_bytes(action, counts):
    before = counts.reduced_bytes
    action()
    return counts.reduced_bytes - before


def process(rank, size, folder):
    """One process of a group: the first writes what it has measured."""
    torch.set_num_threads(1)
    timeout = timedelta(seconds=300)
    dist.init_process_group("gloo", f"file://{folder}/store", timeout, size, rank)
    counts = Counts()
    problem = problem_of(rank, process_group=dist.group.WORLD).counting(counts)
    grouped, own = evaluations(problem), evaluations(problem_of(rank).counting(Counts()))
    payload = {name: sent_bytes(action, counts) for name, action in grouped.items()}
    together = {f"group: {name}": action for name, action in grouped.items()}
    apart = {f"alone: {name}": action for name, action in own.items()}
    n = problem.x0.numel()
    seconds = fastest(together | apart | messages(n))
    if rank == 0:
        found = {"parameters": n, "bytes": payload, "seconds": seconds}
        Path(folder, "found.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def report(size, found):
    """A line for each evaluation: in the group, alone, and what the model predicts."""
    seconds = found["seconds"]
    for name, payload in found["bytes"].items():
        message = seconds["long message" if payload > 1000 else "short message"] if payload else 0.0
        group, alone = seconds[f"group: {name}"], seconds[f"alone: {name}"]
        print(
            f"{size} processes, {name:8}: {1e3 * group:6.2f} ms; alone {1e3 * alone:6.2f} ms, and "
            f"with its message {1e3 * (alone + message):6.2f} ms; {payload} bytes"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    table = {"samples of each process": SAMPLES, "cores": cores, "torch": torch.__version__}
    for size in args.processes:
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(process, (size, folder), size)
            table[f"{size} processes"] = json.loads(Path(folder, "found.json").read_text())
        report(size, table[f"{size} processes"])
    args.out.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
