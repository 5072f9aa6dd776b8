"""When a run is saved, and what becomes of it where that fails."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scipy.optimize import OptimizeWarning

from ksdmin._run.frames import frames_to_the_user
from ksdmin._run.run import Run
from ksdmin._solver.saved import Identity, Saved, kind_of, refuse_other_run, write

log = logging.getLogger("ksdmin")


class Keeper:
    """Writes the checkpoints of a run.

    Parameters
    ----------
    identity : Identity
        Of the run.
    run : Run
        Its options say where and how often.
    begun : bool
        Whether it has been saved before.
    """

    def __init__(self, identity: Identity, run: Run, *, begun: bool = False) -> None:
        path = run.options.checkpoint if run.team.is_first else None
        self.identity, self.run = identity, run
        self._path = None if path is None else Path(path)
        self._every = run.options.checkpoint_every
        self._iterations, self._written = 0, time.monotonic()
        self._begun, self._said = begun, False

    @classmethod
    def new(cls, run: Run, method: str, problem: Any) -> Keeper:
        """That of a new run: a file that is there is refused before anything is computed."""
        keeper = cls(Identity(os.urandom(16).hex(), method, kind_of(problem)), run)
        if keeper._path is not None:
            if not keeper._path.parent.is_dir():
                raise FileNotFoundError(
                    f"option checkpoint={str(keeper._path)!r}: there is no folder "
                    f"{str(keeper._path.parent)!r}"
                )
            refuse_other_run(keeper._path, None)
        return keeper

    def save(self, path: Path, saved: Saved) -> None:
        """Write a file now; of several processes, the first does."""
        if self.run.team.is_first:
            write(path, self.identity, self.run, saved)

    def at_start(self, saved: Callable[[], Saved]) -> None:
        """The first file: where it cannot be written, the run does not begin."""
        if self._path is not None:
            self.save(self._path, saved())
            self._begun = True

    def after_iteration(self, saved: Callable[[], Saved], *, ended: bool) -> None:
        """Write a file if one is due. Where it cannot be written, the run goes on."""
        self._iterations += 1
        if self._path is not None and (ended or self._due):
            self._try(self._path, saved)

    def before_exception(self, saved: Callable[[], Saved]) -> None:
        """An exception is about to end the run."""
        if self._path is not None and self._begun:
            self._try(self._path, saved)

    @property
    def _due(self) -> bool:
        if isinstance(self._every, int):
            return self._iterations >= self._every
        return time.monotonic() - self._written >= self._every

    def _try(self, path: Path, saved: Callable[[], Saved]) -> None:
        self._iterations = 0
        try:
            self.save(path, saved())
        except Exception as error:  # a full disk, a file that was exchanged meanwhile
            log.warning("the checkpoint %s was not written: %s", path, error)
            if not self._said:
                self._said = True
                warnings.warn(
                    f"The checkpoint {path} cannot be written ({error}); the run goes on, and "
                    "tries again when the next one is due",
                    OptimizeWarning,
                    stacklevel=frames_to_the_user(),
                )
        self._written = time.monotonic()
