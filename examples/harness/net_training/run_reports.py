"""What a run of ksdmin reports to a recorder, iteration by iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from examples.harness.net_training.point_recorder import PointRecorder
from examples.harness.recorder import Work


def reporting_to(recorder: PointRecorder) -> Callable[[Any], None]:
    """A callback that reports every point, and ends the run when its time is spent."""

    def callback(intermediate_result: Any) -> None:
        record = intermediate_result.record
        recorder.work = work_of(record, record.iteration)
        recorder.see(intermediate_result.x)
        if recorder.spent():
            raise StopIteration

    return callback


def report_last(recorder: PointRecorder, res: Any) -> None:
    """Where the run ended."""
    recorder.work = work_of(res, res.nit)
    recorder.see(res.x, last=True)


def work_of(counted: Any, iterations: int) -> Work:
    """From a record or a result of ksdmin."""
    counts = (int(counted.nfev), int(counted.njev), int(counted.nhev))
    return Work(iterations, *counts, passes=round(float(counted.passes), 3))
