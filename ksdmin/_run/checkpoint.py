"""What is saved of a run, so that it can continue; and when it is written."""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import OptimizeWarning

from ksdmin._options import HESSIAN_FREE, KINDS, HFOptions, Options
from ksdmin._problem.arrays import Array, Space
from ksdmin._problem.counting import Remembered
from ksdmin._problem.user_values import frames_to_the_user
from ksdmin._result import Record
from ksdmin._run import checkpoint_file
from ksdmin._run.checkpoint_file import encode
from ksdmin._run.observer import Observer, Watched
from ksdmin._run.run import Run, State

STEP_KINDS = ("", *KINDS, HESSIAN_FREE)  # as numbers
OPTIONAL_COUNTS = ("size_A", "size_B", "size_C")  # columns of the history that may be None


@dataclass(frozen=True)
class Saved:
    """What is in the file, beside its header."""

    options: Options | HFOptions  # the user's, but for objects that cannot be saved
    seed: tuple[int, ...]  # of the random sets
    bounds: tuple[Array, Array] | None  # lower and upper
    state: State  # after the last finished iteration
    remembered: Remembered | None  # what the problem knows of its last point
    sets_taken: int  # how many the user's iterable of sets had given
    records: Array  # the history, a row for each record
    watched: Watched  # what is kept of the iterates
    validates: bool  # whether there was a validation function
    # For how many iterations it may not fall. (Options of their own have none without it.)
    patience: int | None
    seconds: float  # spent so far


def saved(run: Run, state: Any, observer: Observer) -> Saved:
    """What is saved of a run at `state`."""
    options: Any = replace(run.options, checkpoint=None, validation=None, patience=None)
    rest = state.sampling.rest
    return Saved(
        options=options,
        seed=run.seed,
        bounds=None if run.box is None else (run.box.lower, run.box.upper),
        state=state,
        remembered=state.ledger.problem.remembered(),
        sets_taken=0 if rest is None else rest.position,
        records=table_of(observer.records),
        watched=observer.watched,
        validates=run.options.validation is not None,
        patience=run.options.patience,
        seconds=run.budget.seconds,
    )


@dataclass(frozen=True)
class Identity:
    """Which run a file is of."""

    run: str  # a name that no other run has
    method: str  # "ksd" or "hf"
    problem: str  # the class of the problem

    @classmethod
    def new(cls, method: str, problem: Any) -> Identity:
        """That of a new run."""
        return cls(os.urandom(16).hex(), method, type(problem).__name__)


def header(identity: Identity, run: Run) -> dict[str, Any]:
    """The header of a file."""
    space = run.space
    return {
        **vars(identity),
        "ksdmin": sys.modules["ksdmin"].__version__,
        "n": space.n,
        "dtype": dtype_name(space),
        "library": space.library,
        "device": str(space.device),
        "hosted": space.hosted,
        "samples": run.subsets.n,
    }


def write(path: Path, identity: Identity, run: Run, saved: Saved) -> None:
    """Write a file; an existing one must be of the same run."""
    given = {"problem": saved.state.ledger.problem, **not_saved(run, saved.state)}
    content = encode(saved, given)
    refuse_other_run(path, identity)
    checkpoint_file.write(path, header(identity, run), content)


def not_saved(run: Run, state: State) -> dict[str, Any]:
    """Objects within the state that the user passes again, by name."""
    full, rest = run.subsets.full, state.sampling.rest
    named = {"full": full, "rest": rest}
    return {name: thing for name, thing in named.items() if thing is not None}


def refuse_path(path: Path) -> None:
    """Raise, before anything is computed, if a new run cannot be saved."""
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"option checkpoint={str(path)!r}: there is no folder {str(path.parent)!r}"
        )
    refuse_other_run(path, None)


def refuse_other_run(path: Path, identity: Identity | None) -> None:
    """Raise if the file belongs to another run, or is not a checkpoint: it is not overwritten."""
    if not path.exists():
        return
    there = checkpoint_file.read_header(path)
    if identity is None or there.get("run") != identity.run:
        raise FileExistsError(
            f"{path}: there is a saved run already, which is not overwritten. Continue it: "
            "ksdmin.resume(path, problem); or delete it, or choose another path"
        )


def dtype_name(space: Space) -> str:
    """Independent of the library."""
    return f"float{8 * space.itemsize}"


def table_of(records: list[Record]) -> Array:
    """The history as one array; numbers up to 2^53 are exact."""
    names = [field.name for field in fields(Record)]
    rows = [[_number(getattr(record, name)) for name in names] for record in records]
    return np.array(rows, dtype=np.float64).reshape(-1, len(names))


def _number(value: Any) -> float:
    if isinstance(value, str):
        return float(STEP_KINDS.index(value))
    return np.nan if value is None else float(value)


def records_of(table: Array) -> list[Record]:
    """The history from such an array."""
    kinds = [(field.name, str(field.type)) for field in fields(Record)]
    rows = np.asarray(table).tolist()
    return [
        Record(*(_entry(*kind, value) for kind, value in zip(kinds, row, strict=True)))
        for row in rows
    ]


def _entry(name: str, kind: str, value: float) -> Any:
    if name in OPTIONAL_COUNTS and value != value:
        return None
    if kind == "str":
        return STEP_KINDS[int(value)]
    return {"bool": bool, "float": float}.get(kind, int)(value)


# When a run is saved, and what happens if that fails


log = logging.getLogger("ksdmin")


class Keeper:
    """Decides when the checkpoint of a run is written."""

    def __init__(
        self,
        path: Path,  # of the file
        every: float,  # after how many iterations, or seconds
        write: Callable[[Path], None],  # writes a file
        *,
        begun: bool,  # whether the run has been saved before
    ) -> None:
        self._path, self._every, self._write = path, every, write
        self._iterations, self._written = 0, time.monotonic()
        self._begun, self._said = begun, False

    def at_start(self) -> None:
        """Write the first file; if that fails, the run does not begin."""
        self._write(self._path)
        self._begun = True

    def after_iteration(self, *, ended: bool) -> None:
        """Write a file if one is due; if that fails, the run goes on."""
        self._iterations += 1
        if ended or self._due:
            self._try()

    def before_exception(self) -> None:
        """An exception is about to end the run."""
        if self._begun:
            self._try()

    @property
    def _due(self) -> bool:
        if isinstance(self._every, int):
            return self._iterations >= self._every
        return time.monotonic() - self._written >= self._every

    def _try(self) -> None:
        self._iterations = 0
        try:
            self._write(self._path)
        except Exception as error:  # a full disk, or another file in its place
            log.warning("the checkpoint %s was not written: %s", self._path, error)
            if not self._said:
                self._said = True
                warnings.warn(
                    f"The checkpoint {self._path} cannot be written ({error}); the run goes on, "
                    "and tries again when the next one is due",
                    OptimizeWarning,
                    stacklevel=frames_to_the_user(),
                )
        self._written = time.monotonic()
