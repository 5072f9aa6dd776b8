"""The collections of problems, and one run on one of them.

| kind | collection | problems | measured by |
|---|---|---|---|
| plain | s2mpj | S2MPJ's without constraints, by default the held-out half | work to the target |
| plain | to the end | Moré, Garbow and Hillstrom's, no target | the last gradient, and work |
| sums | losses | linear models, by default the half for tuning | passes to the target |
| sums | many samples | likewise, so many that the first sets are bounded | passes to the target |
| nets | nets | see `net_tasks`, float64 | excess over the best value after some passes |
| nets | rounded nets | three of them in float32 with bfloat16 products | likewise |

Work is f + g + 2 Hv. The seeds of plain problems are starts that differ by 1e-6, which also ends
the symmetry that many standard starts have; those of sums are draws, those of nets first weights
and draws.
"""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

import ksdmin
from examples.benchmarks.comparison import problem_sets
from examples.benchmarks.comparison.counted_functions import CountedFunctions
from examples.benchmarks.rule_variants import net_tasks, preloaded, sums
from examples.benchmarks.rule_variants.variants import CONTROL, REFERENCE
from examples.harness.recorder import Spent

S2MPJ, ENDS, LOSSES, MANY = "s2mpj", "to the end", "losses", "many samples"
NETS, ROUNDED = net_tasks.NETS, net_tasks.ROUNDED
KINDS = {"plain": (S2MPJ, ENDS), "sums": (LOSSES, MANY), "nets": (NETS, ROUNDED)}
HALVES = TUNING, HELD_OUT = "tuning", "held-out"
DEFAULT_HALF = {S2MPJ: HELD_OUT, LOSSES: TUNING}  # the others are small: all of them
SEEDS = {S2MPJ: 2, ENDS: 1, LOSSES: 2, MANY: 2, NETS: 3, ROUNDED: 2}
TARGET = 1e-6  # of the gradient's largest entry, relative to max(1, |g0|)
CAP, SECONDS = 20_000, 20.0  # of work; of one run on a plain function
SUM_CAP = 3000  # passes
FAR = 10**9
NEVER = math.inf  # the target was not reached
TINY = 1e-20  # of a gradient at the end: smaller ones count as this
OTHER_SEEDS = 100  # of the control: none of those that are used


@dataclass(frozen=True)
class Task:
    """One problem of a collection, and a seed.

    Any collection can be added: its names, and a function in `RUNNERS`.
    """

    collection: str
    name: str
    seed: int = 0

    @property
    def half(self) -> str:
        return sums.half(self.name) if self.collection == LOSSES else problem_sets.half(self.name)


def measures(collection: str) -> tuple[str, ...]:
    """What a run is measured by."""
    if collection in (NETS, ROUNDED):
        return tuple(f"excess after {passes} passes" for passes in net_tasks.PASSES)
    if collection == ENDS:
        return "gradient at the end", "work to the end"
    return ("work",) if collection == S2MPJ else ("passes",)


def names(collection: str) -> list[str]:
    """The problems of a collection, in a fixed order."""
    if collection == S2MPJ:
        return sorted(problem_sets.names(S2MPJ), key=lambda name: zlib.crc32(name[::-1].encode()))
    if collection == ENDS:
        return list(problem_sets.classic_functions.SMALL)
    if collection in (LOSSES, MANY):
        return sums.names() if collection == LOSSES else list(sums.LARGE_REGRESSIONS)
    return list(net_tasks.MAKERS if collection == NETS else net_tasks.TOYS)


def tasks(collection: str, half: str | None = None) -> list[Task]:
    """All tasks of a half ("all": of both; None: what is run by default), seed by seed."""
    half = half or DEFAULT_HALF.get(collection, "all")
    every = [
        Task(collection, name, seed)
        for seed in range(SEEDS[collection])
        for name in names(collection)
    ]
    return [task for task in every if half in ("all", task.half)]


def preload(task: Task) -> None:
    """In the process that all others are copies of."""
    if task.collection == S2MPJ:
        s2mpj_problem(task.name)
    elif task.collection in (LOSSES, MANY):
        sums.data(task.name)
    elif task.collection in (NETS, ROUNDED):
        net_tasks.data(task.name)


def perform(task: Task, rule: str, options: Mapping[str, Any]) -> list[float]:
    """The measures of one run; `rule` may be the control or the reference."""
    seed = task.seed + (OTHER_SEEDS if rule == CONTROL else 0)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return RUNNERS[task.collection](task, seed, rule == REFERENCE, dict(options))


def applies(rule: str, collection: str) -> bool:
    """References are needed for nets only."""
    return rule != REFERENCE or collection in (NETS, ROUNDED)


# --- Plain functions ---


def s2mpj_problem(name: str) -> Any:
    def make() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return problem_sets.make(S2MPJ, name)

    return preloaded.get(S2MPJ, name, make)


def run_plain(task: Task, seed: int, reference: bool, options: dict) -> list[float]:
    """What is called until a gradient is small enough."""
    functions = counted(s2mpj_problem(task.name))
    minimized(functions, task.name, seed, {"gtol": functions.target} | options)
    work = functions.gradient_work
    return [NEVER if work is None else float(work)]


def run_to_the_end(task: Task, seed: int, reference: bool, options: dict) -> list[float]:
    """How small the gradient is where the run ends by itself, and what is called until then."""
    functions = counted(problem_sets.make("classic", task.name))
    x = minimized(functions, task.name, seed, {"gtol": 0.0} | options)
    relative = functions.final(x)["g"] / max(1.0, functions.g0)
    return [max(relative, TINY), float(functions.work.passes)]


def counted(problem: Any) -> CountedFunctions:
    functions = CountedFunctions(problem, CAP, SECONDS)
    functions.target = TARGET * max(1.0, functions.g0)
    return functions


def minimized(
    functions: CountedFunctions, name: str, seed: int, options: dict
) -> np.ndarray | None:
    """Where the run ended; None where its work was spent before."""
    x0 = nearly(functions.problem.x0, name, seed)
    derivatives = {"jac": functions.jac, "hessp": functions.hessp}
    options = {"maxiter": FAR} | options
    with suppress(Spent):
        return ksdmin.minimize(functions.fun, x0, options=options, **derivatives).x
    return None


def nearly(x0: np.ndarray, name: str, seed: int) -> np.ndarray:
    """The start, or another, almost the same: what changes then is chance."""
    if seed == 0:
        return x0
    rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
    return x0 + 1e-6 * np.maximum(np.abs(x0), 1.0) * rng.standard_normal(x0.shape)


# --- Sums of losses ---


def run_sum(task: Task, seed: int, reference: bool, options: dict) -> list[float]:
    """The passes until the gradient of the whole set is small enough."""

    def callback(intermediate_result: Any) -> None:
        if intermediate_result.record.passes > SUM_CAP:
            raise StopIteration

    problem = sums.problem(task.name)
    g0 = np.abs(problem.value_and_gradient(problem.x0)[1]).max()
    res = ksdmin.minimize(
        problem,
        subsets=problem.samples,
        rng=seed,
        callback=callback,
        options={"gtol": TARGET * max(1.0, g0), "maxiter": FAR} | options,
    )
    return [float(res.history["passes"][-1]) if res.success else NEVER]


def run_net(task: Task, seed: int, reference: bool, options: dict) -> list[float]:
    rounded = task.collection == ROUNDED
    return net_tasks.run(task.name, task.seed, seed, rounded, reference, options)


RUNNERS: Mapping[str, Callable[[Task, int, bool, dict], list[float]]] = {
    S2MPJ: run_plain,
    ENDS: run_to_the_end,
    LOSSES: run_sum,
    MANY: run_sum,
    NETS: run_net,
    ROUNDED: run_net,
}
