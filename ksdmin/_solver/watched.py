"""What is kept of the iterates of a run, beside the state that decides how it goes on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ksdmin._options import MethodOptions
from ksdmin._problem.arrays import Array, Space
from ksdmin._problem.user_values import as_scalar
from ksdmin._result import Record, Status


@dataclass
class Watched:
    """Iterates, their average, the best of them by validation; and how the history is thinned.

    Attributes
    ----------
    allvecs : list of arrays, or None
        Every iterate, where they are asked for.
    average : array or None
        The exponential average, once it has begun.
    best : array or None
        The point with the lowest validation value.
    best_value, best_iteration : float, int
        That value, and when it was found.
    best_is_average : bool
        Whether the point is an average.
    stride : int
        The history has every so many-th iteration, and the last.
    called_back : bool
        Whether the callback has seen the last record.
    kinds : tuple of pairs
        How many steps of each kind there were: names and counts, in the order of the first ones.
    """

    allvecs: list[Array] | None = None
    average: Array | None = None
    best: Array | None = None
    best_value: float = math.inf
    best_iteration: int = 0
    best_is_average: bool = False
    stride: int = 1
    called_back: bool = True
    kinds: tuple[tuple[str, int], ...] = ()

    def note(self, records: list[Record], record: Record, most: int | None) -> None:
        """Add a record to a history of at most so many, and count its kind of step."""
        if record.kind:
            counts = dict(self.kinds)
            counts[record.kind] = counts.get(record.kind, 0) + 1
            self.kinds = tuple(counts.items())
        if records and records[-1].iteration % self.stride:
            records.pop()
        records.append(record)
        if most is not None and len(records) > most:
            self.stride *= 2
            records[:-1] = [old for old in records[:-1] if old.iteration % self.stride == 0]

    def move(self, space: Space) -> None:
        """Convert what later iterates are averaged and compared with to the dtype of `space`."""
        self.average, self.best = (
            None if x is None else space.in_own_dtype(x) for x in (self.average, self.best)
        )

    def add_to_average(self, x: Array, weight: float, iteration: int) -> None:
        """The average with one more iterate."""
        if self.average is not None:
            self.average = weight * self.average + (1 - weight) * x
        elif iteration >= 1 / (1 - weight):
            self.average = x

    def validate(
        self, options: MethodOptions, space: Space, x: Array, it: int
    ) -> tuple[float, Status | None]:
        """Judge the iterate, whose value is returned, and the average; patience may end."""
        assert options.validation is not None
        value = self._judge(options.validation, space, x, it, is_average=False)
        if self.average is not None:
            self._judge(options.validation, space, self.average, it, is_average=True)
        return value, self.patience_ends(options, it)

    def patience_ends(self, options: MethodOptions, it: int) -> Status | None:
        """Whether the value has not fallen for so long that the run ends."""
        out_of_patience = it - self.best_iteration >= (options.patience or math.inf)
        return Status.VALIDATION if out_of_patience else None

    def _judge(
        self, validation: Callable[..., Any], space: Space, x: Array, it: int, *, is_average: bool
    ) -> float:
        value = as_scalar(validation(space.given(x)), "validation")
        if value < self.best_value:
            self.best, self.best_value, self.best_iteration = x, value, it
            self.best_is_average = is_average
        return value
