"""How a run ends: the result, of what is known by then."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult, OptimizeWarning

from ksdmin._problem.arrays import Array
from ksdmin._problem.protocol import Traits
from ksdmin._result import MESSAGES, SUCCESSES, TESTS, History, Result, Status
from ksdmin._run.evaluator import Evaluated, Ledger
from ksdmin._run.explain import explained
from ksdmin._run.frames import frames_to_the_user
from ksdmin._run.run import Run
from ksdmin._run.state import State
from ksdmin._solver.observer import Observer, Watched


class Point(NamedTuple):
    """Where a result stands: `gradient` is None where it is not known."""

    x: Array
    value: float
    gradient: Array | None


def finish(run: Run, state: State, observer: Observer, status: Status) -> Result:
    """The result: the best point seen, but the last one where it passed the test or the callback.

    `fun` and `jac` are those of the whole set at `x`; where they are not known yet they are
    computed, and counted.
    """
    with run.evaluating(state.ledger) as evaluator:
        here, full, target = state.here, run.subsets.full, run.gradient_target(state.first_norm)
        on_part = full is not None and not run.subsets.is_full(here.idx)
        if on_part and np.isfinite(here.value):
            here = evaluator.evaluate(here.x, full, diagonal=False)
            if run.stationarity(here.x, here.gradient) <= target:
                status = Status.CONVERGED
        point, best, bad = Point(here.x, here.value, here.gradient), evaluator.best, None
        ended_here = status in (*TESTS, Status.CALLBACK)
        if not ended_here and best is not None and not here.value <= best[1]:
            _, gradient = evaluator.value_and_gradient(best[0], full)
            norm = run.stationarity(best[0], gradient)
            if not np.isfinite(norm) and np.isfinite(best[1]):
                status = Status.NOT_FINITE  # a value without a slope: `here` has both
                bad = Evaluated(best[0], full, best[1], gradient)
            else:
                point = Point(*best, gradient)
                passed = norm <= target and not state.tests_itself
                status = Status.CONVERGED if passed else status
        there = Evaluated(point.x, here.idx if full is None else full, point.value, point.gradient)
        message = explained(run, evaluator, state, status, there, bad)
        average = observer.watched.average
        averaged = np.nan
        if average is not None and full is not None:
            averaged = evaluator.value(average, full)
        ledger = evaluator.ledger
        return make_result(run, state, ledger, observer, status, point, message, averaged)


def cut_short(
    run: Run,
    state: State | None,
    ledger: Ledger,
    observer: Observer,
    status: Status,
    x0: Array,
) -> Result:
    """The result where user code has just failed: the best point seen, as far as it is known."""
    point = Point(x0, float("nan"), None)
    if state is not None:
        here, full = state.here, run.subsets.full
        on_part = full is not None and not run.subsets.is_full(here.idx)
        known = (float("nan"), None) if on_part else (here.value, here.gradient)
        point = Point(here.x, *known)
    for x, value in seen(run, ledger):
        if not point.value <= value:
            point = Point(x, value, None)
    return make_result(run, state, ledger, observer, status, point, MESSAGES[status])


def seen(run: Run, ledger: Ledger) -> list[tuple[Array, float]]:
    """Points with their values on the whole set.

    The best one; and the last, where the run ended between the value and the gradient there.
    """
    known = ledger.problem.remembered()
    points = [] if ledger.best is None else [ledger.best]
    value = None if known is None else known.value
    if known is not None and value is not None and np.isfinite(value):
        points += [(known.x, value)] if run.subsets.is_full(known.idx) else []
    return points


def make_result(
    run: Run,
    state: State | None,
    ledger: Ledger,
    observer: Observer,
    status: Status,
    point: Point,
    message: str,
    averaged: float = float("nan"),
) -> Result:
    """SciPy's fields, and ours."""
    counts = ledger.counts
    result = Result(
        x=run.space.given(point.x),
        fun=point.value,
        jac=None if point.gradient is None else run.space.given(point.gradient),
        nit=state.record.iteration if state else 0,
        nfev=counts.nfev,
        njev=counts.njev,
        nhev=counts.nhev,
        status=int(status),
        success=status in SUCCESSES,
        message=message,
        passes=counts.passes,
        kinds=dict(observer.watched.kinds),
        history=History(observer.records),
        preconditioner=preconditioner_of(run.traits_of(ledger.problem)),
    )
    if observer.watched.allvecs is not None:
        result.allvecs = observer.watched.allvecs
    result.update(chosen_iterates(run, observer.watched, averaged))
    return result


def preconditioner_of(traits: Traits) -> str:
    """What the preconditioner was."""
    if traits.has_factors:
        return "kronecker"
    return "diagonal" if traits.has_diagonal else "identity"


def chosen_iterates(run: Run, watched: Watched, averaged: float) -> dict[str, OptimizeResult]:
    """The average, with its value, and the best point by validation, where they are asked for."""
    chosen, given = {}, run.space.given
    if watched.average is not None:
        chosen["average"] = OptimizeResult(x=given(watched.average), fun=averaged)
    if watched.best is not None:
        chosen["validation"] = OptimizeResult(
            x=given(watched.best),
            fun=watched.best_value,
            nit=watched.best_iteration,
            is_average=watched.best_is_average,
        )
    return chosen


def print_summary(result: OptimizeResult) -> None:
    """What ``disp=True`` shows, in SciPy's words: a failure is a warning too."""
    if result.success:
        print(result.message)
    else:
        warnings.warn(result.message, OptimizeWarning, stacklevel=frames_to_the_user())
    print(f"         Current function value: {result.fun:f}")
    for name, label in (
        ("nit", "Iterations"),
        ("nfev", "Function evaluations"),
        ("njev", "Gradient evaluations"),
        ("nhev", "Hessian evaluations"),
    ):
        print(f"         {label}: {result[name]}")
