"""The collections of problems, and one run on one of them.

| collection | problems | measured by |
|---|---|---|
| plain | the gallery of `tests/problems.py`, exact products | work (f + g + 2 Hv) to the target |
| plain to the end | those of More, Garbow and Hillstrom, no target | work, and the last gradient |
| sums | logistic and softmax regressions on generated samples | passes to the target |
| many samples | likewise, so many that the first sets are bounded | passes to the target |
| nets | small tanh nets on generated samples, float64 | the value after 60 and 200 passes |
| rounded nets | the same in float32 with bfloat16 products | the value after 200 passes |

Which half a problem belongs to is a hash of its name (`comparison.problem_sets.half`).
"""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch

import ksdmin
from examples.benchmarks.comparison import problem_sets
from examples.benchmarks.comparison.counted_functions import CountedFunctions
from examples.benchmarks.regression_suite.linear_model import LinearModel
from examples.benchmarks.regression_suite.synthetic_data import decades
from examples.benchmarks.rule_variants.variants import (
    CONTROL,
    ENDS,
    MANY,
    NETS,
    PLAIN,
    REFERENCE,
    ROUNDED,
    SUMS,
    Variant,
)
from examples.harness.recorder import Spent

TARGET = 1e-6  # of the gradient's largest entry; for plain functions relative to max(1, |g0|)
CAP, SECONDS = 20_000, 20.0  # of work; of one run on a plain function
SUM_CAP = 3000  # passes
NET_PASSES = (60, 200)
REFERENCE_PASSES = 1000
SEEDS = {SUMS: 2, MANY: 2, NETS: 3, ROUNDED: 2}  # of each problem so many
FAR = 10**9
NEVER = math.inf  # the target was not reached
TINY = 1e-20  # of a gradient at the end: smaller ones count as this


@dataclass(frozen=True)
class Task:
    """One problem of a collection, and the seed of the draws."""

    collection: str
    name: str
    seed: int = 0

    @property
    def half(self) -> str:
        return problem_sets.half(self.name)


def measures(collection: str) -> tuple[str, ...]:
    """What a run is measured by."""
    if collection == NETS:
        return tuple(f"excess after {passes} passes" for passes in NET_PASSES)
    if collection == ROUNDED:
        return (f"excess after {NET_PASSES[-1]} passes",)
    if collection == ENDS:
        return "work to the end", "gradient at the end"
    return ("work",) if collection == PLAIN else ("passes",)


def tasks(collection: str) -> list[Task]:
    """All tasks of a collection, in a fixed order."""
    if collection == PLAIN:
        return [Task(PLAIN, name) for name in problem_sets.names("classic")]
    if collection == ENDS:
        return [Task(ENDS, name) for name in problem_sets.gallery().SMALL]
    names = {SUMS: REGRESSIONS, MANY: LARGE_REGRESSIONS, NETS: NET_MAKERS, ROUNDED: NET_MAKERS}
    return [
        Task(collection, name, seed)
        for name in names[collection]
        for seed in range(SEEDS[collection])
    ]


def perform(task: Task, variant: Variant) -> list[float]:
    """The measures of one run."""
    with warnings.catch_warnings(), np.errstate(all="ignore"), variant.applied():
        warnings.simplefilter("ignore")
        return RUNNERS[task.collection](task, variant)


# --- Plain functions ---


def run_plain(task: Task, variant: Variant) -> list[float]:
    """What is called until a gradient is small enough."""
    functions = counted(task)
    minimized(functions, task, variant, gtol=functions.target)
    work = functions.gradient_work
    return [NEVER if work is None else float(work)]


def run_to_the_end(task: Task, variant: Variant) -> list[float]:
    """What is called until the run ends by itself, and how small its gradient is then."""
    functions = counted(task)
    x = minimized(functions, task, variant, gtol=0.0)
    relative = functions.final(x)["g"] / max(1.0, functions.g0)
    return [float(functions.work.passes), max(relative, TINY)]


def counted(task: Task) -> CountedFunctions:
    functions = CountedFunctions(problem_sets.make("classic", task.name), CAP, SECONDS)
    functions.target = TARGET * max(1.0, functions.g0)
    return functions


def minimized(
    functions: CountedFunctions, task: Task, variant: Variant, gtol: float
) -> np.ndarray | None:
    """Where the run ended; None where its work was spent before."""
    x0 = functions.problem.x0
    x0 = nearly(x0, task.name) if variant.rule == CONTROL else x0
    given = {"gtol": gtol, "maxiter": FAR} | dict(variant.options)
    derivatives = {"jac": functions.jac, "hessp": functions.hessp}
    with suppress(Spent):
        return ksdmin.minimize(functions.fun, x0, options=given, **derivatives).x
    return None


def nearly(x0: np.ndarray, name: str) -> np.ndarray:
    """Another start, almost the same: what changes then is chance."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return x0 + 1e-6 * np.maximum(np.abs(x0), 1.0) * rng.standard_normal(x0.shape)


# --- Sums of losses, linear models ---


@dataclass(frozen=True)
class Regression:
    """Samples as `synthetic_data.decades` makes them, and the weight of |w|^2 / 2."""

    samples: int
    features: int
    decades: int
    l2: float
    classes: int = 2

    @property
    def name(self) -> str:
        kind = "logistic" if self.classes == 2 else f"softmax {self.classes}"
        scales = f"{self.decades} decades"
        return f"{kind} {self.samples}x{self.features}, {scales}, l2 {self.l2:g}"

    def model(self) -> LinearModel:
        X, labels, _ = decades(self.samples, self.features, self.decades)
        if self.classes > 2:
            labels = softmax_labels(X, self.classes)
        return LinearModel(X, labels, self.classes, self.l2)


def softmax_labels(X: np.ndarray, classes: int) -> np.ndarray:
    """Drawn from a softmax model with scores of variance 1."""
    rng = np.random.default_rng(1)
    scores = X @ rng.standard_normal((X.shape[1], classes))
    return np.argmax(scores / scores.std() + rng.gumbel(size=scores.shape), axis=1)


REGRESSIONS = {
    made.name: made
    for made in (
        Regression(10_000, 20, 1, 1e-4),
        Regression(10_000, 100, 3, 1e-6),
        Regression(20_000, 50, 2, 1e-4),
        Regression(20_000, 100, 4, 1e-6),
        Regression(30_000, 20, 4, 1e-4),
        Regression(10_000, 30, 2, 1e-4, classes=5),
        Regression(20_000, 20, 1, 1e-6, classes=10),
        Regression(15_000, 50, 3, 1e-6, classes=4),
    )
}
LARGE_REGRESSIONS = {
    made.name: made
    for made in (
        Regression(120_000, 20, 2, 1e-4),
        Regression(200_000, 10, 3, 1e-6),
        Regression(120_000, 10, 1, 1e-6, classes=3),
    )
}


@lru_cache(maxsize=16)
def regression(name: str) -> LinearModel:
    return (REGRESSIONS | LARGE_REGRESSIONS)[name].model()


def seed_of(task: Task, variant: Variant) -> int:
    """The control has other draws, and nothing else."""
    return task.seed + (SEEDS[task.collection] if variant.rule == CONTROL else 0)


def run_sum(task: Task, variant: Variant) -> list[float]:
    """The passes until the gradient of the whole set is small enough."""

    def callback(intermediate_result: Any) -> None:
        if intermediate_result.record.passes > SUM_CAP:
            raise StopIteration

    problem = regression(task.name)
    res = ksdmin.minimize(
        problem,
        subsets=problem.samples,
        rng=seed_of(task, variant),
        callback=callback,
        options={"gtol": TARGET, "maxiter": FAR} | dict(variant.options),
    )
    return [float(res.history["passes"][-1]) if res.success else NEVER]


# --- Nets ---


def layers(*widths: int) -> torch.nn.Sequential:
    """A net with tanh between its layers."""
    parts: list[torch.nn.Module] = []
    for before, after in pairwise(widths):
        parts += [torch.nn.Linear(before, after), torch.nn.Tanh()]
    return torch.nn.Sequential(*parts[:-1])


def classifier() -> tuple:
    """2000 points of ten dimensions, five classes by another net."""
    X = torch.randn(2000, 10)
    labels = (3 * layers(10, 15, 5)(X) + 0.1 * torch.randn(2000, 5)).argmax(1)
    return layers(10, 20, 5), torch.nn.CrossEntropyLoss(), X, labels


def fit() -> tuple:
    """1000 values of a wavy function of eight variables."""
    X = torch.rand(1000, 8) * 2 - 1
    y = torch.sin(3 * X[:, :2].sum(1)) + X[:, 2] * X[:, 3] + 0.05 * torch.randn(1000)
    return layers(8, 30, 10, 1), torch.nn.MSELoss(), X, y[:, None]


def autoencoder() -> tuple:
    """1500 points on a curved surface of three dimensions, in twenty."""
    surface = torch.tanh(torch.randn(1500, 3) @ torch.randn(3, 20))
    X = surface + 0.02 * torch.randn(1500, 20)
    return layers(20, 15, 4, 15, 20), torch.nn.MSELoss(), X, X


NET_MAKERS: Mapping[str, Callable[[], tuple]] = {
    "classifier 10-20-5": classifier,
    "fit 8-30-10-1": fit,
    "autoencoder 20-15-4-15-20": autoencoder,
}
NET_L2 = 1e-5


@lru_cache(maxsize=16)
def net(name: str, seed: int, rounded: bool) -> Any:
    """The problem; the seed is that of the first weights."""
    torch.set_num_threads(1)
    with torch.random.fork_rng():
        torch.manual_seed(zlib.crc32(name.encode()))
        _, loss, X, targets = NET_MAKERS[name]()
        torch.manual_seed(seed)
        model = NET_MAKERS[name]()[0]
    dtype = torch.float32 if rounded else torch.float64
    X, model = X.to(dtype), model.to(dtype)
    targets = targets.to(dtype) if targets.is_floating_point() else targets
    precision = "bfloat16" if rounded else "highest"
    data = X.detach(), targets.detach()
    return ksdmin.from_torch(model, loss, data, l2=NET_L2, precision=precision)


def run_net(task: Task, variant: Variant) -> list[float]:
    """Values in float64, whatever the run computes with."""
    judge, rounded = net(task.name, task.seed, False), task.collection == ROUNDED
    problem = net(task.name, task.seed, rounded)
    last = REFERENCE_PASSES if variant.rule == REFERENCE else NET_PASSES[-1]
    points = [(0.0, math.log(judge.value(judge.x0)))]

    def callback(intermediate_result: Any) -> None:
        x, passes = intermediate_result.x, intermediate_result.record.passes
        points.append((passes, math.log(judge.value(x.to(torch.float64)))))
        if passes > last:
            raise StopIteration

    ksdmin.minimize(
        problem,
        rng=seed_of(task, variant),
        callback=callback,
        options={"gtol": 0.0, "maxiter": FAR} | dict(variant.options),
    )
    if variant.rule == REFERENCE:
        return [math.exp(min(value for _, value in points))] * len(measures(task.collection))
    passes, values = zip(*points, strict=True)
    asked = NET_PASSES[-1:] if rounded else NET_PASSES
    return [float(np.exp(np.interp(at, passes, values))) for at in asked]


RUNNERS = {
    PLAIN: run_plain,
    ENDS: run_to_the_end,
    SUMS: run_sum,
    MANY: run_sum,
    NETS: run_net,
    ROUNDED: run_net,
}
