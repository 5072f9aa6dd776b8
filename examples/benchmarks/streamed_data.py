"""How long a streamed set takes, in units of the same set in memory.

A set of four times the memory budget is kept in a memory-mapped file, and read chunk by chunk; the
same set in memory has the same chunks. The nets are multi-layer perceptrons. Run

    python examples/benchmarks/streamed_data.py --out results.json

on the machine to measure; beside the seconds it says whether both gave the same numbers.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import this_checkout  # noqa: F401
import torch
from torch import nn

import ksdmin
from examples.harness.device_script import arguments, origin
from examples.harness.device_script import write as write_report

INPUTS, CLASSES = 784, 10
# The layers between: of a net that computes as little as it reads, and of the paper's classifier
HIDDEN = {"light": (256,), "deep": (1000, 500, 250)}
BUDGETS = 4  # the set takes so many times the memory budget
CHUNKS = 16  # of the whole set


def net(kind: str, device: str) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise((INPUTS, *HIDDEN[kind], CLASSES)):
        layers += [nn.Linear(fan_in, fan_out), nn.Tanh()]
    return nn.Sequential(*layers[:-1]).to(device)


def write(folder: Path, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels in memory-mapped files."""
    rng = np.random.default_rng(0)
    X = np.memmap(folder / "X", np.float32, "w+", shape=(n, INPUTS))
    for at in range(0, n, 1000):
        X[at : at + 1000] = rng.standard_normal((len(X[at : at + 1000]), INPUTS))
    X.flush()
    y = np.memmap(folder / "y", np.int64, "w+", shape=(n,))
    y[:] = rng.integers(CLASSES, size=n)
    y.flush()
    return np.memmap(folder / "X", np.float32, "r", shape=X.shape), np.memmap(
        folder / "y", np.int64, "r", shape=y.shape
    )


def seconds(run: Callable[[], Any], device: str, repeats: int) -> list[float]:
    """Of each of some runs, after one that is not counted."""
    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return times[1:]


def tasks(problem: Any) -> dict[str, Callable[[], Any]]:
    """What is timed: on all samples, on a twentieth of them, and a short run."""
    x, v, n = problem.x0, torch.ones_like(problem.x0), problem.subsets.n
    some = np.sort(np.random.default_rng(1).choice(n, n // 20, replace=False))

    def products(idx: Any) -> torch.Tensor:
        product = problem.curvature(x, idx)
        return sum(product(v).clone() for _ in range(5))

    def run() -> torch.Tensor:
        return ksdmin.minimize(problem, rng=0, options={"maxiter": 3}).x

    whole = slice(None)
    return {
        "value": lambda: torch.tensor(problem.value(x)),
        "value_and_gradient": lambda: problem.value_and_gradient(x)[1],
        "gradient and diagonal": lambda: problem.value_and_gradient(x, diagonal=True)[2],
        "five products": lambda: products(whole),
        "gradient of a twentieth": lambda: problem.value_and_gradient(x, some)[1],
        "five products of a twentieth": lambda: products(some),
        "minimize, three iterations": run,
    }


def measure(kind: str, n: int, device: str, repeats: int) -> dict[str, Any]:
    """Seconds of both, in turns, and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        X, y = write(Path(folder), n)
        budget = (X.nbytes + y.nbytes) / BUDGETS
        options = {"memory_budget": budget, "chunk_size": n // CHUNKS}
        loss = nn.CrossEntropyLoss()
        memory = torch.tensor(X, device=device), torch.tensor(y, device=device)
        streamed, resident = (
            tasks(ksdmin.from_torch(net(kind, device), loss, data, **options))
            for data in ((X, y), memory)
        )
        report: dict[str, Any] = {}
        for name in streamed:
            times: dict[str, list[float]] = {"streamed": [], "in memory": []}
            for _ in range(repeats):  # in turns, as a machine may be busy for a while
                times["streamed"] += seconds(streamed[name], device, 1)
                times["in memory"] += seconds(resident[name], device, 1)
            both = {kind: statistics.median(spent) for kind, spent in times.items()}
            same = bool(torch.equal(streamed[name]().cpu(), resident[name]().cpu()))
            report[name] = {
                **both,
                "ratio": both["streamed"] / both["in memory"],
                "same numbers": same,
            }
        return report


def main() -> None:
    args = arguments(__doc__)
    cuda = args.device == "cuda"
    n, repeats = args.samples or (400_000 if cuda else 40_000), args.repeats or (9 if cuda else 5)
    megabytes = n * (INPUTS * 4 + 8) / 1e6
    report = {
        **origin(args),
        "samples": n,
        "data (MB)": megabytes,
        "memory budget (MB)": megabytes / BUDGETS,
        "chunk_size": n // CHUNKS,
        "seconds": {kind: measure(kind, n, args.device, repeats) for kind in HIDDEN},
    }
    write_report(report, args)


if __name__ == "__main__":
    main()
