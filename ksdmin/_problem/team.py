"""The processes that make a run together: what the core asks of them. One alone is the rule.

Each process has some of the samples. A problem whose verbs add up what all of them have found
(``ksdmin._adapters.torch.distributed``) returns the same numbers to each: so all of them take the
same steps, without a word about it. What is left are the few things that a process knows alone: its
clock, Ctrl-C, the user's callback, files, exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ksdmin._problem.arrays import Array, Small

T = TypeVar("T")


class Watch(Protocol):
    """What decides, beside the numbers of a problem, that a run ends: a clock, and Ctrl-C."""

    def wishes(self) -> tuple[bool, bool]:
        """Whether this process was interrupted, and whether its time is up."""

    def agree(self, interrupted: bool, out_of_time: bool) -> None:
        """What holds for all processes by now."""


class Team:
    """One process alone: all agree, always.

    Attributes
    ----------
    rank : int
        The number of this process. The first one writes files.
    size : int
        How many there are.
    """

    rank, size = 0, 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def together(self, action: Callable[[], T]) -> T:
        """What `action` returns here; where it raises in any process, all of them raise."""
        return action()

    def from_first(self, thing: T) -> T:
        """What the first process has: an array, or any object that can be pickled."""
        return thing

    def require_same(self, things: Mapping[str, Any]) -> None:
        """Refuse what is not the same in all processes."""

    def agreed(self, look: Callable[[], int | None], marks: Sequence[float]) -> int | None:
        """The largest number that `look` returns in any process, None where it is None in all.

        `marks` are numbers that have to be the same in all of them.
        """
        return look()

    def for_run(self, watch: Watch) -> Team:
        """The same for a run that ends when all processes know that `watch` wants it to."""
        return self

    # Sums over all processes: one alone has them already. `counts` are those of a run

    def joint(
        self, numbers: Sequence[Any], vectors: Callable[[Sequence[Any]], list[Array]], counts: Any
    ) -> tuple[Sequence[Any], list[Array]]:
        """The sums of some numbers, and those of vectors that are made of these sums."""
        return numbers, vectors(numbers)

    def joint_product(self, product: Array, counts: Any, on_again: Callable[[], None]) -> Array:
        """The sum of a vector; `on_again` is called where any process made a pass again for it."""
        return product

    def joint_parts(self, arrays: Sequence[Array], counts: Any) -> Sequence[Array]:
        """The sums of arrays of any shape, which are overwritten."""
        return arrays

    def joint_on_host(
        self, numbers: Sequence[Any], slopes: Array, finish: Callable[[Any], Any], counts: Any
    ) -> tuple[float, Small]:
        """What `finish` makes of the sums of some numbers, and the sums of `slopes`."""
        raise NotImplementedError


ALONE = Team()


def team_of(problem: Any) -> Team:
    """The processes that evaluate a problem, also one of the user's, which need not say."""
    team: Team = getattr(problem, "team", ALONE)
    return team
