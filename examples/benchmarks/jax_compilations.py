"""Seconds of a first run in jax, compiling included, beside L-BFGS-B's on the same function.

    python examples/benchmarks/jax_compilations.py

For each net: SciPy's L-BFGS-B for 200 evaluations of the compiled value and gradient; then ksdmin
until it has the same loss on all samples. Each has a process of its own, in which a first run, that
compiles, is followed by one from another seed: other parameters to start from, other sets, and a
problem that is made again. Imports are not counted. What is printed is also written to
``results/jax_compilations.json``; ``--set-aside`` takes the net that nothing was tuned on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import one_thread  # noqa: F401  (for the processes that this one starts)
import scipy.optimize
import this_checkout  # noqa: F401
from jax.flatten_util import ravel_pytree
from sklearn import datasets

import ksdmin
from examples.harness.provenance import provenance
from examples.harness.store import Store

RESULTS = Path(__file__).parent / "results" / "jax_compilations.json"
EVALUATIONS = 200  # of L-BFGS-B
L2 = 1e-4
COMPILED = "/jax/core/compile/backend_compile_duration"
# name: data, loss, widths of the hidden layers
NETS = {
    "digits": (datasets.load_digits, "softmax-cross-entropy", (32,)),
    "diabetes": (datasets.load_diabetes, "squared-error", (20, 10)),
    "cancer": (datasets.load_breast_cancer, "softmax-cross-entropy", (20,)),
}
SET_ASIDE = ("cancer",)


class Net:
    """A multi-layer perceptron and its data."""

    def __init__(self, name: str) -> None:
        load, self.loss, self._hidden = NETS[name]
        X, y = load(return_X_y=True)
        self.X = ((X - X.mean(0)) / np.maximum(X.std(0), 1e-3)).astype(np.float32)
        self.y = y.astype(np.int32)
        if self.loss == "squared-error":
            self.y = ((y - y.mean()) / y.std()).astype(np.float32)[:, None]

    def parameters(self, seed: int) -> list[Any]:
        """Weights and shifts of all layers."""
        rng = np.random.default_rng(seed)
        outputs = 1 if self.loss == "squared-error" else int(self.y.max()) + 1
        widths = (self.X.shape[1], *self._hidden, outputs)
        shapes = pairwise(widths)
        return [
            (rng.standard_normal((a, b)).astype("f") / a**0.5, np.zeros(b, "f")) for a, b in shapes
        ]

    def mean_loss(self, params: Any) -> Any:
        """The function that L-BFGS-B gets."""
        z, y = model(params, self.X), self.y
        if self.loss == "squared-error":
            losses = jnp.sum((z - y) ** 2, axis=1)
        else:
            losses = jax.nn.logsumexp(z, axis=1) - jnp.take_along_axis(z, y[:, None], 1)[:, 0]
        return jnp.mean(losses) + L2 / 2 * sum(jnp.sum(w**2) for layer in params for w in layer)


def model(params: Any, inputs: Any) -> Any:
    for W, b in params[:-1]:
        inputs = jnp.tanh(inputs @ W + b)
    W, b = params[-1]
    return inputs @ W + b


def lbfgsb(net: Net) -> Any:
    """A function seed -> loss; what it compiles is kept from one call to the next."""
    _, unravel = ravel_pytree(net.parameters(0))
    value_and_grad = jax.jit(jax.value_and_grad(lambda x: net.mean_loss(unravel(x))))

    def pair(x: Any) -> tuple[float, Any]:
        value, g = value_and_grad(x.astype("f"))
        return float(value), np.asarray(g, float)

    def run(seed: int, target: float | None) -> float:
        x0 = np.concatenate([np.ravel(w) for layer in net.parameters(seed) for w in layer])
        options = {"maxfun": EVALUATIONS, "maxiter": EVALUATIONS, "ftol": 0, "gtol": 0}
        res = scipy.optimize.minimize(
            pair, x0.astype(float), jac=True, method="L-BFGS-B", options=options
        )
        return float(res.fun)

    return run


def ksd(net: Net) -> Any:
    """The same, to a given loss."""

    def run(seed: int, target: float | None) -> float:
        data, params = (net.X, net.y), net.parameters(seed)
        problem = ksdmin.from_jax(model, net.loss, data, params=params, l2=L2)

        def stop(intermediate_result: Any) -> None:
            enough = intermediate_result.fun <= target
            if enough and problem.fun(intermediate_result.x) <= target:  # on all samples
                raise StopIteration

        return float(ksdmin.minimize(problem, rng=seed, callback=stop).fun)

    return run


METHODS = {"L-BFGS-B": lbfgsb, "ksd": ksd}


def measure(name: str, method: str, targets: list[float]) -> list[dict[str, Any]]:
    """A first and a second run in this process."""
    compiled: list[float] = []

    def listen(event: str, duration: float, **_: Any) -> None:
        if event == COMPILED:
            compiled.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    run, found = METHODS[method](Net(name)), []
    for seed, target in enumerate(targets or [None, None]):
        compiled.clear()
        start = time.perf_counter()
        loss = run(seed, target)
        seconds = time.perf_counter() - start
        found.append(
            {
                "net": name,
                "method": method,
                "run": ("first", "second")[seed],
                "seconds": round(seconds, 2),
                "compilations": len(compiled),
                "compiling": round(sum(compiled), 2),
                "loss": loss,
            }
        )
    return found


def in_fresh_process(name: str, method: str, targets: list[float]) -> list[dict[str, Any]]:
    command = [sys.executable, __file__, "--measure", name, method, json.dumps(targets)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--set-aside", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.measure:
        name, method, targets = args.measure
        print(json.dumps(measure(name, method, json.loads(targets))))
        return
    store = Store(args.out, ("net", "method", "run"))
    for name in SET_ASIDE if args.set_aside else [n for n in NETS if n not in SET_ASIDE]:
        theirs = in_fresh_process(name, "L-BFGS-B", [])
        ours = in_fresh_process(name, "ksd", [run["loss"] for run in theirs])
        for run, other in zip(ours, theirs, strict=True):
            run["ratio"] = round(run["seconds"] / other["seconds"], 2)
            print({key: value for key, value in run.items() if key != "method"}, flush=True)
        origin = provenance("jax", "scipy")
        store.add(*({**run, **origin} for run in (*theirs, *ours)))


if __name__ == "__main__":
    main()
