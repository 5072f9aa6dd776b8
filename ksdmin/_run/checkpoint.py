"""What is saved of a run, so that it can continue; and when it is written."""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scipy.optimize import OptimizeWarning

from ksdmin._options import HFOptions, Options
from ksdmin._problem.arrays import Array, Space
from ksdmin._problem.counting import Remembered
from ksdmin._problem.user_values import frames_to_the_user
from ksdmin._result import History
from ksdmin._run import checkpoint_file
from ksdmin._run.checkpoint_file import encode
from ksdmin._run.observer import Observer, Watched
from ksdmin._run.run import Run, State


@dataclass(frozen=True)
class Saved:
    """What is in the file, beside its header."""

    options: Options | HFOptions  # the user's, but for objects that cannot be saved
    seed: tuple[int, ...]  # of the random sets
    bounds: tuple[Array, Array] | None  # lower and upper
    state: State  # after the last finished iteration
    remembered: Remembered | None  # what the problem knows of its last point
    sets_taken: int  # how many the user's iterable of sets had given
    records: list[list[Any]]  # the fields of each record of the history
    watched: Watched  # what is kept of the iterates
    validates: bool  # whether there was a validation function
    # For how many iterations it may not fall. (Options of their own have none without it.)
    patience: int | None
    seconds: float  # spent so far


def what_is_saved(run: Run, state: Any, observer: Observer) -> Saved:
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
        records=[
            [getattr(record, name) for name in History.columns] for record in observer.records
        ],
        watched=observer.watched,
        validates=run.options.validation is not None,
        patience=run.options.patience,
        seconds=run.budget.seconds,
    )


def write(
    path: Path, identity: Mapping[str, str], run: Run, state: State, observer: Observer
) -> None:
    """Write a file; an existing one must be of the same run.

    `identity` is the part of the header by which it is known: a name that no other `run` has, the
    `method`, and the class of the `problem`.
    """
    space = run.space
    header = {
        **identity,
        "ksdmin": sys.modules["ksdmin"].__version__,
        "n": space.n,
        "dtype": dtype_name(space),
        "library": space.library,
        "device": str(space.device),
        "hosted": space.hosted,
        "samples": run.subsets.n,
    }
    given = {"problem": state.ledger.problem, "full": run.subsets.full, "rest": state.sampling.rest}
    saved = what_is_saved(run, state, observer)
    content = encode(saved, {name: part for name, part in given.items() if part is not None})
    refuse_other_run(path, identity["run"])
    checkpoint_file.write(path, header, content)


def refuse_path(path: Path) -> None:
    """Raise, before anything is computed, if a new run cannot be saved."""
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"option checkpoint={str(path)!r}: there is no folder {str(path.parent)!r}"
        )
    refuse_other_run(path, "")


def refuse_other_run(path: Path, name: str) -> None:
    """Raise if the file belongs to another run, or is not a checkpoint: it is not overwritten."""
    if path.exists() and checkpoint_file.read_header(path)["run"] != name:
        raise FileExistsError(
            f"{path}: there is a saved run already, which is not overwritten. Continue it: "
            "ksdmin.resume(path, problem); or delete it, or choose another path"
        )


def dtype_name(space: Space) -> str:
    """Independent of the library."""
    return f"float{8 * space.itemsize}"


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
        self._begun, self._said = begun, False
        self._iterations, self._written = 0, time.monotonic()

    def at_start(self) -> None:
        """Write the first file; if that fails, the run does not begin."""
        self._write(self._path)
        self._begun = True

    def after_iteration(self, *, ended: bool) -> None:
        """Write a file if one is due."""
        self._iterations += 1
        of_seconds = not isinstance(self._every, int)
        passed = time.monotonic() - self._written if of_seconds else self._iterations
        if ended or passed >= self._every:
            self._try()

    def before_exception(self) -> None:
        """An exception is about to end the run."""
        if self._begun:
            self._try()

    def _try(self) -> None:
        """Write a file; if that fails, the run goes on."""
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
