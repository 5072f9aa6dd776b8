"""The processes of a run: what the core asks of them. Usually there is one.

Each process has some of the samples. A problem whose verbs sum over all processes
(``ksdmin._adapters.torch.distributed``) returns the same numbers to each, so that all take the same
steps without further messages. A few things are known to one process only: its clock, Ctrl-C, the
user's callback, files, exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ksdmin._problem.arrays import Array, Small

T = TypeVar("T")


class Watch(Protocol):
    """What may end a run, besides the numbers of a problem: a clock, and Ctrl-C."""

    def wishes(self) -> tuple[bool, bool]:
        """Whether this process was interrupted, and whether its time is up."""

    def agree(self, interrupted: bool, out_of_time: bool) -> None:
        """Learn what holds for all processes by now."""


class Team:
    """A single process, which always agrees with itself."""

    rank, size = 0, 1  # the number of this process, and how many there are

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def together(self, action: Callable[[], T]) -> T:
        """The result of `action` here; if it raises in any process, all processes raise."""
        return action()

    def from_first(self, thing: T) -> T:
        """The value of the first process: an array, or any object that can be pickled."""
        return thing

    def require_same(self, things: Mapping[str, Any]) -> None:
        """Raise if a value is not the same in all processes."""

    def agreed(self, look: Callable[[], int | None], marks: Sequence[float]) -> int | None:
        """The largest number that `look` returns in any process; None if it is None in all.

        `marks` are numbers that must be the same in all processes.
        """
        return look()

    def for_run(self, watch: Watch) -> Team:
        """The team for a run that ends when all processes know that `watch` wants it to."""
        return self

    # Sums over all processes: one alone has them already. `counts` are those of a run

    def joint(
        self, numbers: Sequence[Any], vectors: Callable[[Sequence[Any]], list[Array]], counts: Any
    ) -> tuple[Sequence[Any], list[Array]]:
        """The sums of some numbers, and of vectors that are computed from these sums."""
        return numbers, vectors(numbers)

    def joint_product(self, product: Array, counts: Any, on_again: Callable[[], None]) -> Array:
        """The sum of a vector; `on_again` is called if any process had to repeat a pass."""
        return product

    def joint_parts(self, arrays: Sequence[Array], counts: Any) -> Sequence[Array]:
        """The sums of arrays of any shape, which are overwritten."""
        return arrays

    def joint_on_host(
        self, numbers: Sequence[Any], slopes: Array, finish: Callable[[Any], Any], counts: Any
    ) -> tuple[float, Small]:
        """The result of `finish` for the sums of some numbers, and the sums of `slopes`."""
        raise NotImplementedError


ALONE = Team()


def team_of(problem: Any) -> Team:
    """The processes that evaluate a problem; a user's problem need not declare them."""
    team: Team = getattr(problem, "team", ALONE)
    return team
