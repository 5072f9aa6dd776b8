"""The collections of problems: which belong to them, and how one of them is made.

| collection | problems |
|---|---|
| s2mpj | unconstrained S2MPJ problems in their default sizes |
| s2mpj-bounds | S2MPJ problems with bounds only, fixed variables included |
| classic | the gallery of `classic_functions.py` |
| classic-large | its scalable problems with 9,996 variables (10,000 is no multiple of 12) |

Which S2MPJ problems are in is a matter of a rule, not of names: see `Limits` and `verdict`. The
rule looks at times, so its outcome is kept in results/scipy/problems.json, for all machines.
"""

from __future__ import annotations

import json
import signal
import time
import warnings
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from examples.benchmarks.comparison import classic_functions, s2mpj

KINDS = {"s2mpj": "u", "s2mpj-bounds": "b"}
COLLECTIONS = (*KINDS, "classic", "classic-large")
ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "examples" / "benchmarks" / "results" / "scipy"
LARGE = 9_996
TARGET = 1e-5  # of the gradient, relative to max(1, |g0|)


@dataclass(frozen=True)
class TestProblem:
    """What a method is given, and the box it has to stay in (None: everywhere)."""

    name: str
    x0: np.ndarray
    value: Callable[[np.ndarray], float]
    gradient: Callable[[np.ndarray], np.ndarray]
    hessian: Callable[[np.ndarray], object]  # a matrix or operator with @
    lower: np.ndarray | None = None
    upper: np.ndarray | None = None

    def stationarity(self, x: np.ndarray, g: np.ndarray) -> float:
        """The largest magnitude in the gradient, projected onto the box."""
        if self.lower is not None:
            g = x - np.clip(x - g, self.lower, self.upper)
        return float(np.abs(g).max())

    def violation(self, x: np.ndarray) -> float:
        if self.lower is None:
            return 0.0
        return float(max((self.lower - x).max(), (x - self.upper).max(), 0.0))


def half(name: str) -> str:
    """The defaults of ksdmin are tuned on one half only; the other shows how that carries over."""
    return ("tuning", "held-out")[zlib.crc32(name.encode()) % 2]


class Pair:
    """Value and gradient that are computed together, for callers that ask one after the other."""

    def __init__(self, both: Callable) -> None:
        self.both, self.at, self.found = both, b"", (0.0, np.zeros(0))

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        if (at := x.tobytes()) != self.at:
            self.found, self.at = self.both(x), at
        return self.found

    def value(self, x: np.ndarray) -> float:
        return self(x)[0]

    def gradient(self, x: np.ndarray) -> np.ndarray:
        return self(x)[1].copy()


def from_s2mpj(name: str, bounded: bool) -> TestProblem:
    problem = s2mpj.load(name)
    objective, x0 = s2mpj.GroupSum(problem), np.array(problem.x0, float).ravel()
    pair = Pair(objective.value_and_gradient)
    functions = (pair.value, pair.gradient, objective.hessian)
    if not bounded:
        return TestProblem(name, x0, *functions)
    lower, upper = s2mpj.bounds(problem)
    return TestProblem(name, np.clip(x0, lower, upper), *functions, lower, upper)


def from_gallery(name: str, n: int | None = None) -> TestProblem:
    problem = classic_functions.PROBLEMS[name](**({} if n is None else {"n": n}))
    return TestProblem(name, problem.x0, problem.fun, problem.grad, problem.hess)


def scalable(name: str) -> bool:
    """Whether the gallery's formulas stay sparse: at most 50 entries in a row of the Hessian."""
    if name not in classic_functions.LARGE:
        return False
    problem, n = classic_functions.PROBLEMS[name](n=300), 300
    entries = problem.hess(problem.x0)
    count = entries.nnz if hasattr(entries, "nnz") else np.count_nonzero(entries)
    return count <= 50 * n


def make(collection: str, name: str) -> TestProblem:
    if collection in KINDS:
        return from_s2mpj(name, bounded=collection == "s2mpj-bounds")
    return from_gallery(name, LARGE if collection == "classic-large" else None)


# --- Which problems of S2MPJ ---


@dataclass(frozen=True)
class Limits:
    """What a problem has to keep to; seconds are those of loading and of value and gradient."""

    variables: int = 200
    loading: float = 3.0
    evaluation: float = 0.005


FULL = Limits(variables=5000, loading=60.0, evaluation=0.1)


class TooSlow(BaseException):
    """Out of time; S2MPJ itself catches every Exception."""


def stop(*_) -> None:
    raise TooSlow


def verdict(collection: str, name: str, limits: Limits) -> str | float:
    """Seconds for a value and a gradient at x0, or the reason why the problem is left out."""
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limits.loading)
    try:
        problem = make(collection, name)
        x, times = problem.x0, []
        for shift in (0.0, 1e-9, 2e-9):  # three different points, or they would be remembered
            begin = time.perf_counter()
            f, g = problem.value(x + shift), problem.gradient(x + shift)
            times.append(time.perf_counter() - begin)
        f, g = problem.value(x), problem.gradient(x)
        finite = np.isfinite([f, *g, *(problem.hessian(x) @ np.ones_like(x))]).all()
    except TooSlow:
        return f"loading takes more than {limits.loading} s"
    except Exception as error:
        return f"does not load: {error!r}"[:100]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if not finite:
        return "not finite at x0"
    if problem.stationarity(x, g) <= TARGET:
        return "x0 is stationary"
    if min(times) > limits.evaluation:
        return f"an evaluation takes more than {1e3 * limits.evaluation:g} ms"
    return min(times)


def survey(collection: str, limits: Limits) -> dict:
    """The problems that pass, slowest first, and why the others do not."""
    passed, left_out = {}, {}
    for name, n in s2mpj.names(KINDS[collection]):
        outcome = verdict(collection, name, limits) if n <= limits.variables else f"n = {n}"
        (left_out if isinstance(outcome, str) else passed)[name] = outcome
    slowest = sorted(passed, key=lambda name: -passed[name])
    return {"limits": asdict(limits), "problems": slowest, "left out": left_out}


def names(collection: str, full: bool = False) -> list[str]:
    """All problems of a collection; those of S2MPJ are surveyed where no list is kept yet."""
    if collection not in KINDS:
        every = list(classic_functions.PROBLEMS)
        return [name for name in every if scalable(name)] if "large" in collection else every
    file = RESULTS / "problems.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    key = f"{collection}, full" if full else collection
    if key not in kept:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            kept[key] = survey(collection, FULL if full else Limits())
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(kept, indent=1) + "\n")
    return kept[key]["problems"]
