"""What it costs to watch and keep a long run: progress, history, and a checkpoint every 60 seconds.

    KSDMIN_DATA=folder python examples/benchmarks/watching_cost.py --out results.json

The paper's auto-encoder of MNIST is trained twice from the same seed for the same iterations (long
enough for a checkpoint or more): once with none of the three, once with all. `--repeats` is the
number of iterations.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import this_checkout  # noqa: F401
from own_share import auto_encoder

import ksdmin
from examples.harness.device_script import arguments, origin, write

ITERATIONS = 700
EVERY = 60.0  # seconds between checkpoints
RUNS = 1  # of each kind


def seconds_of_run(problem: Any, iterations: int, **watching: Any) -> tuple[float, Any]:
    """Of as many iterations, and the result."""
    begin = time.perf_counter()
    options = {"maxiter": iterations, "gtol": 0.0, **watching}
    res = ksdmin.minimize(problem, rng=0, options=options)
    return time.perf_counter() - begin, res


def seconds_of_checkpoint(problem: Any, path: Path) -> float:
    """The fewest of three, of a run with all its directions and pairs."""
    solver = ksdmin.Solver(problem, rng=0, options={"maxiter": 20, "gtol": 0.0})
    for _ in solver:
        pass
    return min(seconds_of_save(solver, path) for _ in range(3))


def seconds_of_save(solver: ksdmin.Solver, path: Path) -> float:
    begin = time.perf_counter()
    solver.save(path)
    return time.perf_counter() - begin


def measure(device: str, iterations: int) -> dict[str, Any]:
    problem = auto_encoder(device)
    seconds_of_run(problem, 20)  # captures what can be captured
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.ksd"
        watching = {"progress": True, "checkpoint": path, "checkpoint_every": EVERY}
        plain, watched = [], []
        for _ in range(RUNS):
            plain.append(seconds_of_run(problem, iterations, history=2))
            watched.append(seconds_of_run(problem, iterations, **watching))
            path.unlink()  # a run that is there is not overwritten
        one_checkpoint = seconds_of_checkpoint(problem, path)
        size = path.stat().st_size
    (bare, bare_res), (full, full_res) = (min(runs, key=first) for runs in (plain, watched))
    return {
        "parameters": int(problem.x0.shape[0]),
        "iterations": [bare_res.nit, full_res.nit],
        "loss": [float(bare_res.fun), float(full_res.fun)],
        "seconds of every run": [[run[0] for run in runs] for runs in (plain, watched)],
        "share of the run": full / bare - 1,
        "seconds of one checkpoint": one_checkpoint,
        "its bytes": size,
        "its share of 60 seconds": one_checkpoint / EVERY,
    }


def first(pair: tuple[float, Any]) -> float:
    return pair[0]


def main() -> None:
    args = arguments(__doc__)
    write({**origin(args), **measure(args.device, args.repeats or ITERATIONS)}, args)


if __name__ == "__main__":
    main()
