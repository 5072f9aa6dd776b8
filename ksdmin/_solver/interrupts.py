"""Ctrl-C: once, and the run ends after the evaluation; twice, and it ends at once."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from ksdmin._run.evaluator import Interrupt

log = logging.getLogger("ksdmin")


class OnCtrlC:
    """A context in which Ctrl-C asks a run to end.

    It takes the place of Python's own handler only, and in the main thread only: whoever has a
    handler keeps it. A run within a run is asked together with the outer one.
    """

    def __init__(self, interrupt: Interrupt) -> None:
        self._interrupt = interrupt
        self._handler: _Handler | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        own = _Handler()
        current = signal.signal(signal.SIGINT, own)  # to look first would cost as much again
        if current is signal.default_int_handler:
            self._handler = own
        else:
            signal.signal(signal.SIGINT, current)
            self._handler = current if isinstance(current, _Handler) else None
        if self._handler is not None:
            self._handler.runs.append(self._interrupt)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handler is None:
            return
        self._handler.runs.remove(self._interrupt)
        if not self._handler.runs:
            current = signal.signal(signal.SIGINT, signal.default_int_handler)
            if current is not self._handler:  # a callback has set another one
                signal.signal(signal.SIGINT, current)


class _Handler:
    """Of all runs that are going on, one within the other."""

    def __init__(self) -> None:
        self.runs: list[Interrupt] = []

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        if not self.runs or all(run.asked for run in self.runs):
            return signal.default_int_handler(number, frame)
        for run in self.runs:
            run.asked = True
        log.warning("Ctrl-C: the run ends after this evaluation; once more ends it at once")
        return None
