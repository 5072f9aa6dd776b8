"""Weak scaling: each process has the same number of samples; what do more processes cost?

    python -m examples.benchmarks.weak_scaling             # measures 1, 2 and 4 processes
    python -m examples.benchmarks.weak_scaling --processes 1 2

Measured are the seconds of a value, a gradient and a curvature product over all samples (minima of
several), alone and in the group, beside an all-reduce of a vector as long as the parameters. What
docs/distributed.md says of many GPUs rests on the model that is checked here: a product takes what
it takes on the samples of one process, and one all-reduce.
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
SAMPLES, FEATURES, WIDTH = 1000, 100, 300  # of each process
REPEATS = 20


def fastest(action):
    """The shortest of several times, in seconds; all processes begin together."""
    times = []
    for _ in range(REPEATS):
        if dist.is_initialized():
            dist.barrier()
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return min(times)


def problem_of(rank, **arguments):
    generator = torch.Generator().manual_seed(rank)
    X = torch.randn(SAMPLES, FEATURES, generator=generator)
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(FEATURES, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(),
        nn.Linear(WIDTH, FEATURES),
    )  # fmt: skip
    return ksdmin.from_torch(net, nn.MSELoss(), (X, X), **arguments)


def measured(problem):
    """Seconds of each evaluation, and what it sends."""
    counts = Counts()
    problem = problem.counting(counts)
    x, whole = problem.x0, slice(None)
    product, V = problem.curvature(x, whole), torch.randn(20, x.numel())
    actions = {
        "value": lambda: problem.value(x, whole),
        "gradient": lambda: problem.value_and_gradient(x, whole),
        "product": lambda: product(x),
        "search": lambda: problem.value_and_projected_gradient(x, whole, V),
    }
    out = {}
    for name, action in actions.items():
        action()
        before = counts.reduced_bytes
        action()
        sent = counts.reduced_bytes - before
        out[name] = {"seconds": fastest(action), "bytes": sent}
    return out


def all_reduce_seconds(n, dtype):
    vector = torch.zeros(n, dtype=dtype)
    return fastest(lambda: dist.all_reduce(vector))


def process(rank, size, folder):
    """One process of a group: the first writes what it has measured."""
    torch.set_num_threads(1)
    store = f"file://{folder}/store{size}"
    timeout = timedelta(seconds=300)
    dist.init_process_group("gloo", store, timeout, size, rank)
    problem = problem_of(rank, process_group=dist.group.WORLD)
    found = measured(problem)
    n = problem.x0.numel()
    found["all_reduce"] = {
        "seconds": all_reduce_seconds(n + 2, torch.float32),
        "bytes": 4 * (n + 2),
    }
    found["small all_reduce"] = {"seconds": all_reduce_seconds(22, torch.float64), "bytes": 176}
    if rank == 0:
        Path(folder, f"{size}.json").write_text(json.dumps({"n": n, **found}))
    dist.barrier()
    dist.destroy_process_group()


def alone_together(rank, size, folder):
    """One of several processes that know nothing of each other: what sharing the machine costs."""
    torch.set_num_threads(1)
    found = measured(problem_of(rank))
    Path(folder, f"alone{rank}.json").write_text(json.dumps(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    table = {"samples of each process": SAMPLES, "cores": cores, "torch": torch.__version__}
    for size in args.processes:
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(process, (size, folder), size)
            grouped = json.loads(Path(folder, f"{size}.json").read_text())
            mp.spawn(alone_together, (size, folder), size)
            alone = json.loads(Path(folder, "alone0.json").read_text())
        table[f"{size} processes"] = {"group": grouped, "no group": alone}
        report(size, grouped, alone)
    args.out.write_text(json.dumps(table, indent=1) + "\n")


def report(size, grouped, alone):
    """A line for each evaluation: with the group, without, and what the model predicts."""
    for name in ("value", "gradient", "product", "search"):
        large = name in ("gradient", "product")
        message = grouped["all_reduce" if large else "small all_reduce"]["seconds"]
        seconds, own = grouped[name]["seconds"], alone[name]["seconds"]
        print(
            f"{size} processes, {name:8}: {1e3 * seconds:7.2f} ms; alone {1e3 * own:7.2f} ms, "
            f"with one all-reduce {1e3 * (own + message):7.2f} ms; {grouped[name]['bytes']} bytes"
        )


if __name__ == "__main__":
    main()
