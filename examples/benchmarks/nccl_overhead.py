"""One rank beside no process group at all: how much slower is the same run?

    python -m examples.benchmarks.nccl_overhead

With a CUDA device the backend is nccl, and what is timed is the MNIST-sized auto-encoder of the
paper (784-1000-500-250-30 and back, 2.8 million parameters, random data); without one it is gloo,
and a smaller net. The runs have the same iterates, and seconds are the minimum of several runs
each, taken in turn.
"""

import tempfile
import time
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn

import ksdmin

ON_CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda", 0) if ON_CUDA else torch.device("cpu")
HALF = (784, 1000, 500, 250, 30) if ON_CUDA else (64, 50, 20, 8)
WIDTHS = (*HALF, *reversed(HALF[:-1]))
SAMPLES, ITERATIONS, REPEATS = 60_000 if ON_CUDA else 2_000, 10, 5


def problem_of(**arguments):
    torch.manual_seed(0)
    X = torch.rand(SAMPLES, WIDTHS[0], device=DEVICE)
    layers = [layer for i, o in pairwise(WIDTHS)
              for layer in (nn.Linear(i, o), nn.Tanh())][:-1]  # fmt: skip
    net = nn.Sequential(*layers).to(DEVICE)
    return ksdmin.from_torch(net, nn.BCEWithLogitsLoss(), (X, X), **arguments)


def seconds(problem):
    wait = torch.cuda.synchronize if ON_CUDA else lambda: None
    wait()
    began = time.perf_counter()
    res = ksdmin.minimize(problem, options={"maxiter": ITERATIONS}, rng=0)
    wait()
    return time.perf_counter() - began, res


def compared(group):
    """The least seconds and the result of each, by name; taken in turn."""
    problems = {"alone": problem_of(), "one rank": problem_of(process_group=group)}
    times, results = {name: [] for name in problems}, {}
    for _ in range(REPEATS + 1):  # the first captures CUDA graphs
        for name, problem in problems.items():
            took, results[name] = seconds(problem)
            times[name].append(took)
    return {name: min(row[1:]) for name, row in times.items()}, results


def main():
    with tempfile.TemporaryDirectory() as folder:
        backend, more = ("nccl", {"device_id": DEVICE}) if ON_CUDA else ("gloo", {})
        dist.init_process_group(
            backend, init_method=f"file://{folder}/store", rank=0, world_size=1, **more
        )
        best, results = compared(dist.group.WORLD)
        same = torch.equal(results["alone"].x, results["one rank"].x)
        last = results["one rank"].history[-1]
        print(f"alone {best['alone']:.3f} s, one rank with {backend} {best['one rank']:.3f} s: "
              f"{100 * (best['one rank'] / best['alone'] - 1):+.1f}%; the same iterates: {same}; "
              f"{last.reductions} messages, {last.reduced_bytes / 1e6:.0f} MB")  # fmt: skip
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
