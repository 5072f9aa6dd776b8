"""What watches a run: the history, the callback, validation and averages, the progress bar."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from scipy.optimize import OptimizeResult

from ksdmin._options import HFOptions, MethodOptions
from ksdmin._problem.arrays import Array, Space
from ksdmin._problem.user_values import add_note, as_scalar
from ksdmin._result import Record, Status
from ksdmin._run.run import State


@dataclass
class Watched:
    """Iterates, their average, the best of them by validation; and how the history is thinned."""

    allvecs: list[Array] | None = None  # every iterate, where they are asked for
    average: Array | None = None  # the exponential average, once it has begun
    best: Array | None = None  # the point with the lowest validation value
    # That value, and when it was found.
    best_value: float = math.inf
    best_iteration: int = 0
    best_is_average: bool = False  # whether the point is an average
    stride: int = 1  # the history has every so many-th iteration, and the last
    called_back: bool = True  # whether the callback has seen the last record
    # How many steps of each kind there were: names and counts, in the order of the first ones.
    kinds: tuple[tuple[str, int], ...] = ()


CALLED_AS = (
    "a callback is called as callback(x), or as callback(intermediate_result=...) if this is its "
    "only parameter"
)
# Iterations and time, followed by numbers of the run. All of it fits into 80 columns.
BAR_FORMAT = "{desc} {n_fmt} it, {elapsed}{postfix}"

log = logging.getLogger("ksdmin")


class Observer:
    """Sees every state of a run, as a context: the progress bar is closed at its end."""

    def __init__(
        self, callback: Callable[..., Any] | None, options: MethodOptions, space: Space
    ) -> None:
        self.records: list[Record] = []
        self._noted: Record | None = None  # the state's record has no validation value
        self.watched = Watched([] if options.return_all else None)
        if not (callback is None or callable(callback)):
            raise TypeError(f"callback: expected a function, not {type(callback).__name__}")
        self._callback, self._space, self._options = callback, space, options
        self._by_keyword = callback is not None and takes_result(callback)
        name = "hf" if isinstance(options, HFOptions) else "ksd"
        self._bar = progress_bar(name) if options.progress else None

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()

    def close(self) -> None:
        """The run has ended."""
        if self._bar is not None:
            self._bar.close()

    def take_up(self, records: list[Record], last: Record, watched: Watched) -> None:
        """Continue from what another observer has seen; `last` is the record of the state."""
        self.records, self._noted, self.watched = records, last, watched
        if self._bar is not None:
            self._bar.update(last.iteration)

    def move(self, space: Space) -> None:
        """Convert what is kept of the iterates to the new dtype of the run."""
        watched, self._space = self.watched, space
        watched.average, watched.best = (
            None if x is None else space.in_own_dtype(x) for x in (watched.average, watched.best)
        )

    def see(self, state: State) -> Status | None:
        """Record a state and call the callback, which may end the run."""
        options, watched, it = self._options, self.watched, state.record.iteration
        if self._noted is not state.record:  # otherwise no iteration was made
            self._note(state.record, state.here.x)
        again = watched.called_back  # a saved run may have ended here
        if options.validation is not None and not again:
            value = self._validate(options.validation, state.here.x, it, is_average=False)
            if watched.average is not None:
                self._validate(options.validation, watched.average, it, is_average=True)
            self.records[-1] = replace(self.records[-1], validation=value)
        out_of_patience = it - watched.best_iteration >= (options.patience or math.inf)
        status = Status.VALIDATION if out_of_patience else None
        if self._callback is not None and not again:
            status = self._call_back(self._callback, state) or status
        watched.called_back = True
        return status

    def _note(self, record: Record, x: Array) -> None:
        """Add an iterate to what is kept, and its record to the history."""
        watched, options, records = self.watched, self._options, self.records
        self._noted = record
        if record.kind:
            counts = dict(watched.kinds)
            counts[record.kind] = counts.get(record.kind, 0) + 1
            watched.kinds = tuple(counts.items())
        if records and records[-1].iteration % watched.stride:
            records.pop()
        records.append(record)
        if options.history is not None and len(records) > options.history:
            watched.stride *= 2
            records[:-1] = [old for old in records[:-1] if old.iteration % watched.stride == 0]
        if watched.allvecs is not None:
            watched.allvecs.append(self._space.given(x))
        watched.called_back = record.iteration == 0  # x0 is not an iteration
        if watched.called_back:
            return
        weight = options.average
        if weight is not None and watched.average is not None:
            watched.average = weight * watched.average + (1 - weight) * x
        elif weight is not None and record.iteration >= 1 / (1 - weight):
            watched.average = x
        if log.isEnabledFor(logging.DEBUG):
            log.debug(
                "iteration %d, %s: value %.8g, gradient %.2e, passes %.4g, %.4g s%s",
                *(record.iteration, record.kind, record.value, record.gradient_norm),
                *(record.passes, record.seconds),
                "" if record.accepted else ", refused",
            )
        if self._bar is not None:
            self._bar.set_description_str(record.kind.partition("-")[0], refresh=False)
            self._bar.set_postfix(refresh=False, **shown(record, options.maxtime))
            self._bar.update()

    def _validate(
        self, validation: Callable[..., Any], x: Array, iteration: int, *, is_average: bool
    ) -> float:
        watched, value = self.watched, as_scalar(validation(self._space.given(x)), "validation")
        if value < watched.best_value:
            watched.best, watched.best_value, watched.best_iteration = x, value, iteration
            watched.best_is_average = is_average
        return value

    def _call_back(self, callback: Callable[..., Any], state: State) -> Status | None:
        try:
            if self._by_keyword:
                shown = intermediate(state, self.records[-1], self._space)
                callback(intermediate_result=shown)
            else:
                callback(self._space.given(state.here.x))
        except StopIteration:
            return Status.CALLBACK
        except TypeError as error:
            add_note(error, CALLED_AS, "positional argument")
            raise
        return None


def shown(record: Record, maxtime: float) -> dict[str, str]:
    """The numbers beside the progress bar."""
    numbers = {"f": f"{record.value:.6g}", "g": f"{record.gradient_norm:.0e}"}
    if not math.isnan(record.passes):
        numbers["passes"] = f"{record.passes:.3g}"
    if maxtime < math.inf:
        numbers["left"] = f"{max(0.0, maxtime - record.seconds):.0f}s"
    return numbers


def takes_result(callback: Callable[..., Any]) -> bool:
    """SciPy's rule: the only parameter is named intermediate_result."""
    try:
        return set(inspect.signature(callback).parameters) == {"intermediate_result"}
    except (TypeError, ValueError):  # a builtin without a signature
        return False


def intermediate(state: State, record: Record, space: Space) -> OptimizeResult:
    """What a callback, and a loop over a `Solver`, gets of an iteration."""
    return OptimizeResult(
        x=space.given(state.here.x),
        fun=record.value,
        jac=space.given(state.here.gradient),
        nit=record.iteration,
        nfev=record.nfev,
        njev=record.njev,
        nhev=record.nhev,
        gradient_norm=record.gradient_norm,
        record=record,
    )


def progress_bar(name: str, bar_format: str | None = BAR_FORMAT, **settings: Any) -> Any:
    """A progress bar of tqdm."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError("a progress bar needs tqdm: pip install tqdm") from None
    return tqdm(desc=name, bar_format=bar_format, **settings)
