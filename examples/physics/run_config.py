"""What makes a run: two runs with the same configuration are the same run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from examples.harness.store import Store
from examples.physics.experiments import EXPERIMENTS
from examples.physics.methods import METHODS, methods_for

IDENTITY = ("config", "hardware")  # of a stored run
RESULTS = Path(__file__).parent / "results"


class WrongCall(ValueError):
    """Something that was asked for cannot be; the message says what can."""


@dataclass(frozen=True)
class Config:
    """A run's configuration.

    It ends after `seconds`, or after `passes` over the points where given. `options` are those that
    replace the method's own.
    """

    problem: str
    method: str
    seed: int
    seconds: float
    dtype: str = "float64"
    passes: float | None = None
    options: dict[str, Any] = field(default_factory=dict)
    small: bool = False

    def __post_init__(self) -> None:
        _check("problem", self.problem, EXPERIMENTS)
        _check("method", self.method, METHODS)
        _check("dtype", self.dtype, ("float64", "float32"))
        for name, limit in (("seconds", self.seconds), ("passes", self.passes)):
            if limit is not None and not limit > 0:
                raise WrongCall(f"{name}: {limit:g} is no limit; expected a number above 0")
        compared = methods_of(self.problem, self.small)
        if self.method not in compared:
            raise WrongCall(
                f"{self.method} is not for {self.problem}, which is compared with "
                f"{', '.join(compared)}"
            )

    def __str__(self) -> str:
        words = [self.problem, self.method, f"seed {self.seed}", self.dtype, f"{self.seconds:g} s"]
        return ", ".join(words + (["small"] if self.small else []))

    def found_in(self, store: Store, hardware: str) -> bool:
        """Whether there is this run already."""
        return store.find(config=asdict(self), hardware=hardware) is not None


def methods_of(problem: str, small: bool) -> list[str]:
    """Those that the problem is compared with."""
    return methods_for(EXPERIMENTS[problem], small)


def configurations(
    problems: Iterable[str],
    methods: Iterable[str],
    seeds: Iterable[int],
    dtypes: Iterable[str],
    small: bool,
    **same: Any,
) -> Iterator[Config]:
    """All that there are of these; the methods of one seed follow each other.

    A method that a problem is not compared with is left out, and so is a dtype.
    """
    for problem, seed, dtype in product(problems, seeds, dtypes):
        if dtype in EXPERIMENTS[problem].dtypes:
            for method in methods_of(problem, small):
                if method in methods:
                    yield Config(problem, method, seed, dtype=dtype, small=small, **same)


def store_of(problem: str, folder: Path) -> Store:
    """Where the runs of a problem are."""
    return Store(folder / f"{problem}.json", IDENTITY)


def default_folder(small: bool) -> Path:
    """Small runs are not kept beside the others."""
    return RESULTS / "small" if small else RESULTS


def _check(name: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise WrongCall(f"{name}: {value!r} is not known; expected one of {', '.join(known)}")
