"""What of a net's training is KSD's own algebra, and what an iteration takes.

    KSDMIN_DATA=folder python examples/benchmarks/own_share.py --out results.json

Two nets: the paper's auto-encoder of MNIST in TF32, and a small one in float64 with 1,000 samples.
The evaluations of a run are written down and made again without the method, one after the other.
What the run takes beyond that is its own share. A clock around every evaluation would say more than
that, as it takes away the overlap of host and device. `--repeats` is the number of iterations.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import this_checkout  # noqa: F401
import torch
from torch import nn

import ksdmin
from examples.data import mnist
from examples.harness.device_script import arguments, origin, write
from examples.harness.net_training.replayed_problem import Recorded, seconds_of_calls
from examples.paper import table1_networks
from ksdmin._problem.arrays import Space

ITERATIONS = 60
RUNS = 3  # of which the fastest counts
KRYLOV_DIM = 20
SMALL_SAMPLES = 1000


def auto_encoder(device: str) -> Any:
    """The paper's, on all digits for training."""
    images = torch.as_tensor(mnist.load_digits().train.inputs).to(device, torch.float32)
    net = table1_networks.auto_encoder(images.shape[1], (1000, 500, 250, 30))
    table1_networks.initialise_sparsely(net, 0)
    loss = nn.BCEWithLogitsLoss()
    return ksdmin.from_torch(net.to(device), loss, (images, images), l2=2e-5, precision="high")


def small_net(device: str) -> Any:
    """Some 10,000 parameters, which learn a teacher's classes."""
    torch.manual_seed(0)
    inputs = torch.randn(SMALL_SAMPLES, 64, dtype=torch.float64)
    classes = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)).double()(inputs)
    net = nn.Sequential(nn.Linear(64, 96), nn.Tanh(), nn.Linear(96, 32), nn.Tanh())
    net = nn.Sequential(net, nn.Linear(32, 10)).double().to(device)
    data = inputs.to(device), classes.argmax(1).to(device)
    return ksdmin.from_torch(net, nn.CrossEntropyLoss(), data, l2=1e-4)


NETS = {"MNIST auto-encoder, TF32": auto_encoder, "10,000 parameters, float64": small_net}


def seconds_of_run(problem: Any, iterations: int) -> tuple[float, Any]:
    """Of as many iterations, and the result."""
    begin = time.perf_counter()
    options = {"maxiter": iterations, "gtol": 0.0, "krylov_dim": KRYLOV_DIM}
    # Evaluations of one kind: what is written down has no other
    res = ksdmin.minimize(problem, rng=0, options={**options, "without": ["finer_arithmetic"]})
    return time.perf_counter() - begin, res


def measure(make: Any, args: argparse.Namespace) -> dict[str, Any]:
    """One net."""
    problem, iterations = make(args.device), args.repeats or ITERATIONS
    recorded = Recorded(problem)
    seconds_of_run(recorded, iterations)  # captures what can be captured, too
    plain, res = min((seconds_of_run(problem, iterations) for _ in range(RUNS)), key=first)
    model = min(seconds_of_calls(problem, recorded.calls) for _ in range(RUNS))
    return {
        "parameters": int(problem.x0.shape[0]),
        "iterations": res.nit,
        "milliseconds an iteration": 1e3 * plain / res.nit,
        "median with the widest space": 1e3 * median_step(res),
        "widest space": int(res.history["dim"].max()),
        "iterations with products": int((torch.as_tensor(res.history["nhev"]).diff() > 0).sum()),
        "passes": res.passes,
        "evaluations": {
            "run": res.nfev + res.nhev,
            "made again": evaluations(recorded.calls, problem.traits.rows_per_sample),
        },
        "seconds": plain,
        "seconds of the evaluations alone": model,
        "own share": 1 - model / plain,
        **preconditioner(problem, recorded.calls),
    }


def preconditioner(problem: Any, calls: list[tuple[Any, ...]]) -> dict[str, Any]:
    """What Kronecker factors take: they are evaluations, inverses and solves KSD's own share."""
    asked = [call for call in calls if call[0] == "factors"]
    if not asked:
        return {}
    space, x = Space(problem.x0), problem.x0
    factors = problem.factors(x, asked[-1][1])
    damped = factors.damped(space, 1.0)
    inverting = seconds_of(lambda: factors.damped(space, 1.0), x)
    return {
        "factors": len(asked),
        "seconds of the factors": min(seconds_of_calls(problem, asked) for _ in range(RUNS)),
        "milliseconds of their inverses": 1e3 * inverting,
        "milliseconds of a solve": 1e3 * seconds_of(lambda: damped.solve(space, x), x),
    }


def seconds_of(work: Callable[[], Any], x: torch.Tensor) -> float:
    """The least of several times, until the device is done."""
    wait = torch.cuda.synchronize if x.is_cuda else lambda: None
    times = []
    for _ in range(RUNS + 1):
        wait()
        begin = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - begin)
    return min(times)


def first(pair: tuple[float, Any]) -> float:
    """The seconds of a run."""
    return pair[0]


def evaluations(calls: list[tuple[Any, ...]], rows_per_sample: float) -> int:
    """How many values and products; factors are two, a Jacobian as many as a sample has rows."""
    counted = {"curvature": 0, "factors": 2, "jacobian": round(rows_per_sample)}
    return sum(counted.get(call[0], 1) for call in calls)


def median_step(res: Any) -> float:
    """Seconds of a step with a space of the most vectors."""
    steps, dims = torch.as_tensor(res.history["seconds"]).diff(), res.history["dim"]
    return float(steps[torch.as_tensor(dims[1:] == dims.max())].median())


def main() -> None:
    args = arguments(__doc__)
    report = {**origin(args), "nets": {name: measure(make, args) for name, make in NETS.items()}}
    write(report, args)


if __name__ == "__main__":
    main()
