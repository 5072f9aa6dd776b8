"""Runs of the benchmark of seconds: each problem and method in a process of its own.

A method that hangs where it calls nothing is ended from outside. A short run is repeated, and the
least time counts, as it has the least of what is not the method's.
"""

from __future__ import annotations

import multiprocessing
import warnings
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np

from examples.benchmarks.cheap_functions import families
from examples.benchmarks.comparison import problem_sets, s2mpj, solvers
from examples.benchmarks.comparison.timed_functions import TimedFunctions, keeping_hessian
from examples.harness.recorder import Spent
from examples.harness.store import Run

CHEAP, S2MPJ = COLLECTIONS = "cheap", "s2mpj"
METHODS = {
    CHEAP: ("ksd", "L-BFGS-B-tight", "Newton-CG-tight", "trust-krylov"),
    S2MPJ: ("ksd", "L-BFGS-B-tight"),
}
FEW = 100  # variables, of S2MPJ's problems
REPETITIONS, SHORT = 3, 3.0  # of runs shorter than so many seconds
PATIENCE = 5.0  # times the limit, by the wall: then a process is ended


@dataclass(frozen=True)
class Timing:
    """One problem of a collection."""

    collection: str
    name: str
    n: int | None = None

    @property
    def half(self) -> str:
        if self.collection == CHEAP:
            return families.half(self.name)
        return dict(zip(("tuning", "held-out"), families.HALVES, strict=True))[
            problem_sets.half(self.name)
        ]

    def problem(self) -> problem_sets.TestProblem:
        if self.collection == CHEAP:
            return families.make(self.name, self.n)
        return keeping_hessian(problem_sets.make(S2MPJ, self.name))


def timings(collection: str, largest: int | None = None) -> list[Timing]:
    """All problems of a collection, in a fixed order."""
    if collection == S2MPJ:
        n, most = dict(s2mpj.names(problem_sets.KINDS[S2MPJ])), min(FEW, largest or FEW)
        return [Timing(S2MPJ, name) for name in problem_sets.names(S2MPJ) if n[name] <= most]
    return [
        Timing(CHEAP, name, n)
        for name, family in families.FAMILIES.items()
        for n in family.sizes
        if largest is None or n <= largest
    ]


def options(method: str, target: float) -> dict:
    """Every method is told the target, as far as it has a word for it."""
    return {"xtol": 0.0} if method.startswith("Newton") else {"gtol": target}


def once(problem: problem_sets.TestProblem, method: str, limit: float) -> dict:
    functions, message = TimedFunctions(problem, limit), ""
    try:
        message = str(solvers.run(method, functions, options(method, functions.target)).message)
    except Spent as spent:
        message = str(spent)
    except Exception as error:
        message = repr(error)
    return functions.end() | {"message": message[:100]}


def repeated(timing: Timing, method: str, limit: float) -> dict:
    """The run with the least time."""
    problem = timing.problem()
    best = once(problem, method, limit)
    for _ in range(REPETITIONS if best["seconds"] < SHORT else 0):  # the first one warms up
        best = min(best, once(problem, method, limit), key=lambda run: run["seconds"])
    return best | {"n": len(problem.x0)}


def child(answer: Connection, timing: Timing, method: str, limit: float) -> None:
    warnings.simplefilter("ignore")
    with np.errstate(all="ignore"):
        answer.send(repeated(timing, method, limit))


def perform(timing: Timing, method: str, limit: float) -> Run:
    """The run as it is stored; `reached` is false where it hung."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=child, args=(there, timing, method, limit)
    )
    process.start()
    there.close()
    hung = {"reached": False, "n": timing.n, "seconds": None, "message": "ended from outside"}
    found = hung
    with suppress(EOFError):
        found = here.recv() if here.poll(PATIENCE * limit) else hung
    process.kill()
    process.join()
    named = {"collection": timing.collection, "problem": timing.name, "size": timing.n}
    return named | {"half": timing.half, "method": method, "limit": limit} | rounded(found)


def rounded(run: dict) -> dict:
    return {
        key: float(f"{value:.4g}") if key in ("seconds", "inside") and value else value
        for key, value in run.items()
    }
