"""What the one loop leaves open: the paper's choices, and ours.

A policy is a small function or value; `Policies` is a full set of them. They differ in when the
Krylov space has grown enough, how eigenvalues are floored, when the inner search has paid off,
whether a step is taken, and how the sets grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ksdmin._ksd.krylov import Growth
from ksdmin._ksd.subspace import absolute, floored
from ksdmin._problem.arrays import Small
from ksdmin._problem.subsets import Sizes

# When has the Krylov space grown enough?  (growth, forcing) -> bool; None is the paper: never
# before K.


def inexact_newton(growth: Growth, forcing: float) -> bool:
    """When the Newton step of the space solves H d = -g to a relative residual of `forcing`."""
    try:
        c = np.linalg.solve(growth.H_bar, -growth.g_bar)
    except np.linalg.LinAlgError:
        return False
    return growth.residual(c) <= forcing


# When has the inner search paid off?  (iteration, promise, gained) -> bool


def thorough(iteration: int, promise: float, gained: float) -> bool:
    """The paper: the search runs to its end."""
    return False


@dataclass(frozen=True)
class Paying:
    """When the next iteration promises less than a share of what has been gained."""

    share: float

    def __call__(self, iteration: int, promise: float, gained: float) -> bool:
        return promise < self.share * gained


# Is the step taken, and how large are the next sets?


@dataclass(frozen=True)
class Outcome:
    """What a step achieved, on the samples of the new value, and what it was to achieve.

    `promised` is the decrease that the search found on C, with the slope of A. Where the new value
    is of other samples than A, `expected` is the same with their slope: the difference is A's
    doing. `modelled` is what the quadratic model promised, with their slope too.
    """

    promised: float
    expected: float
    achieved: float
    noise: float
    modelled: float


def always(outcome: Outcome) -> bool:
    """The paper: every step is taken."""
    return True


def if_not_worse(outcome: Outcome) -> bool:
    """A step is taken unless the value on A grew by more than noise."""
    return outcome.achieved >= -outcome.noise


def fixed(sizes: Sizes, outcome: Outcome, n: int, stalled: bool) -> Sizes:
    """The paper: the sets keep their sizes."""
    return sizes


def growing(sizes: Sizes, outcome: Outcome, n: int, stalled: bool) -> Sizes:
    """When a step clearly achieves less than half of its promise, what cost it most doubles.

    That is A, whose slope was wrong, or else B and C. Where nothing is clear and the run has
    stalled, all double. Beyond half of the samples comes everything: the method is deterministic
    then, and learns.
    """
    A, B, C = sizes.A, sizes.B, sizes.C
    if stalled:
        return Sizes(doubled(A, n), doubled(B, n), doubled(C, n))
    if outcome.achieved + outcome.noise >= 0.5 * outcome.promised:
        return sizes
    if outcome.promised - outcome.expected > outcome.expected - outcome.achieved:
        A = doubled(A, n)
    else:
        B, C = doubled(B, n), doubled(C, n)
    return Sizes(max(A, C), B, C)


def doubled(size: int, n: int) -> int:
    """Twice as many samples, or all."""
    return n if 4 * size > n else 2 * size


@dataclass(frozen=True)
class Policies:
    """One answer to each question that the loop asks.

    Attributes
    ----------
    name : str
        As it appears in the result.
    grown : callable or None
        When the Krylov space is large enough; None: with K vectors.
    spectrum : callable
        How the eigenvalues of H_bar are made positive.
    paid : callable
        When the inner search ends early.
    accept : callable
        Whether a step is taken.
    resize : callable
        How the sets grow.
    fewest : int
        Samples in B and in C, where the user asks for no size: fewer are not worth while. A model
        that is not linear in its parameters takes fewer: many rough steps train it best.
    most : int or None
        Samples in B and in C at first, where the user asks for no size, and K times as many in A;
        None: no limit. Of very many samples, few tell the way from a bad start.
    compares : bool
        Whether the value before a step is computed on the samples of the value after it, where A
        is a part and those are others.
    escapes : bool
        Whether a vanishing gradient is looked at for negative curvature.
    tilted : bool
        Whether the search objective gets the slope of A at zero.
    first_direction : bool
        Whether e_1 stands in for the previous direction on the first iteration.
    """

    name: str
    grown: Callable[[Growth, float], bool] | None
    spectrum: Callable[[Small, float], Small]
    paid: Callable[[int, float, float], bool]
    accept: Callable[[Outcome], bool]
    resize: Callable[[Sizes, Outcome, int, bool], Sizes]
    fewest: int
    most: int | None
    compares: bool
    escapes: bool
    tilted: bool
    first_direction: bool


AS_PRINTED = Policies(
    name="paper",
    grown=None,
    spectrum=floored,
    paid=thorough,
    accept=always,
    resize=fixed,
    fewest=1,
    most=None,
    compares=False,
    escapes=False,
    tilted=False,
    first_direction=True,
)

DEFAULT = Policies(
    name="default",
    grown=inexact_newton,
    spectrum=absolute,
    paid=Paying(0.02),
    accept=if_not_worse,
    resize=growing,
    fewest=1000,
    most=4000,
    compares=True,
    escapes=True,
    tilted=True,
    first_direction=False,
)


class Preset(Mapping[str, Any]):
    """Options that belong together; a mapping that can be pickled and cannot be changed."""

    def __init__(self, **options: Any) -> None:
        self._options = options

    def __getitem__(self, name: str) -> Any:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __or__(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._options, **changes}

    def __ror__(self, others: Mapping[str, Any]) -> dict[str, Any]:
        return {**others, **self._options}

    def __repr__(self) -> str:
        return f"<preset {self._options['policies'].name!r}: {', '.join(self)}>"


PAPER = Preset(
    policies=AS_PRINTED,
    krylov_dim=20,
    memory=1,
    pairs=0,
    floor=1e-4,
    diagonal_power=1.0,
    damping=0.0,
    inner_maxiter=None,
)
"""The options that make the algorithm the paper's: ``minimize(..., options=ksdmin.PAPER)``.

Change one as ``options=ksdmin.PAPER | {"krylov_dim": 80, "inner_maxiter": 30}``.
"""
