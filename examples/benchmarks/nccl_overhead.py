"""One rank with nccl beside no process group at all: how much slower is the same run?

    python -m examples.benchmarks.nccl_overhead          # on a machine with a CUDA device

The runs have the same iterates; what is timed is the MNIST-sized auto-encoder of the paper
(784-1000-500-250-30 and back, 2.8 million parameters, random data), some iterations, the minimum of
several runs each, taken in turn.
"""

import tempfile
import time
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn

import ksdmin

WIDTHS = (784, 1000, 500, 250, 30, 250, 500, 1000, 784)
SAMPLES, ITERATIONS, REPEATS = 60_000, 10, 5


def problem_of(**arguments):
    torch.manual_seed(0)
    X = torch.rand(SAMPLES, WIDTHS[0], device="cuda")
    layers = [layer for i, o in pairwise(WIDTHS)
              for layer in (nn.Linear(i, o), nn.Tanh())][:-1]  # fmt: skip
    net = nn.Sequential(*layers).to("cuda")
    return ksdmin.from_torch(net, nn.BCEWithLogitsLoss(), (X, X), **arguments)


def seconds(problem):
    torch.cuda.synchronize()
    began = time.perf_counter()
    res = ksdmin.minimize(problem, options={"maxiter": ITERATIONS}, rng=0)
    torch.cuda.synchronize()
    return time.perf_counter() - began, res


def main():
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "nccl", init_method=f"file://{folder}/store", rank=0, world_size=1,
            device_id=torch.device("cuda", 0),
        )  # fmt: skip
        problems = {"alone": problem_of(), "nccl": problem_of(process_group=dist.group.WORLD)}
        times = {name: [] for name in problems}
        results = {}
        for _ in range(REPEATS + 1):  # the first captures CUDA graphs
            for name, problem in problems.items():
                took, results[name] = seconds(problem)
                times[name].append(took)
        best = {name: min(row[1:]) for name, row in times.items()}
        same = torch.equal(results["alone"].x, results["nccl"].x)
        last = results["nccl"].history[-1]
        print(f"alone {best['alone']:.3f} s, nccl {best['nccl']:.3f} s: "
              f"{100 * (best['nccl'] / best['alone'] - 1):+.1f}%; the same iterates: {same}; "
              f"{last.reductions} messages, {last.reduced_bytes / 1e6:.0f} MB")  # fmt: skip
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
