"""All families by name, their sizes, and which of them are set aside.

Set aside is every second family in the order of the alphabet, but for the two that were timed
before this benchmark was written (quartic and rosenbrock): these belong to the tuned half.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from examples.benchmarks.cheap_functions import chains, whole
from examples.benchmarks.comparison.problem_sets import TestProblem

SIZES = (50, 1_000, 10_000, 100_000)
HALVES = TUNED, ASIDE = "tuned", "aside"
KNOWN_BEFORE = ("quartic", "rosenbrock")


@dataclass(frozen=True)
class Family:
    """A function of any size.

    Attributes
    ----------
    make : callable
        n -> the start and the function.
    sizes : tuple of int
        Fewer where a run takes a number of iterations that grows with n, or where rounding hides
        the target from all methods.
    multiple : int
        n is rounded up to one.
    """

    make: Callable[[int], whole.Made]
    sizes: tuple[int, ...] = SIZES
    multiple: int = 1

    def __call__(self, n: int) -> whole.Made:
        return self.make(-(-n // self.multiple) * self.multiple)


FAMILIES = {
    "arwhead": Family(chains.arwhead),
    "bdqrtic": Family(chains.bdqrtic),
    "bratu": Family(whole.bratu),
    "broyden_tridiagonal": Family(whole.broyden_tridiagonal),
    "cosine": Family(chains.cosine),
    "cragglvy": Family(chains.cragglvy, multiple=2),
    "dixmaani": Family(chains.dixmaani, multiple=3),
    "dixon_price": Family(chains.dixon_price),
    "dqdrtic": Family(chains.dqdrtic),
    "edensch": Family(chains.edensch),
    "engval1": Family(chains.engval1),
    "fletchcr": Family(chains.fletchcr, sizes=SIZES[:2]),
    "freuroth": Family(chains.freuroth),
    "liarwhd": Family(chains.liarwhd),
    "morebv": Family(whole.morebv, sizes=SIZES[:1]),
    "nondia": Family(chains.nondia),
    "powell_singular": Family(chains.powell_singular, multiple=4),
    "power": Family(whole.power),
    "quartic": Family(chains.quartic),
    "rosenbrock": Family(chains.rosenbrock, sizes=(5, 50, 1_000)),
    "sparse_logistic": Family(whole.sparse_logistic),
    "srosenbr": Family(chains.srosenbr, multiple=2),
    "total_variation": Family(whole.total_variation),
    "tridia": Family(chains.tridia),
    "trigonometric": Family(whole.trigonometric, sizes=SIZES[:1]),
    "woods": Family(chains.woods, multiple=4),
}


def half(name: str) -> str:
    """Which half a family belongs to."""
    if name in KNOWN_BEFORE:
        return TUNED
    return HALVES[[other for other in FAMILIES if other not in KNOWN_BEFORE].index(name) % 2]


def make(name: str, n: int) -> TestProblem:
    """The family's problem of about n variables."""
    x0, function = FAMILIES[name](n)
    return TestProblem(name, x0, function.value, function.gradient, function.hessian)
