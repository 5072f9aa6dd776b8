"""One run, from its arguments to an honest result: start, step, stop."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult, OptimizeWarning

from ksdmin._hf import step as hf
from ksdmin._ksd import saddle, start
from ksdmin._ksd import step as ksd
from ksdmin._ksd.inverse_hessian import learned_curvature
from ksdmin._observer import Observer
from ksdmin._options import HFOptions, MethodOptions, Options
from ksdmin._problem.arrays import Array, Space, as_vector
from ksdmin._problem.box import Box, as_box, started
from ksdmin._problem.functions import FunctionProblem
from ksdmin._problem.hosted import problem_of_run, space_of_run
from ksdmin._problem.protocol import Problem
from ksdmin._problem.subsets import PLAIN, Subsets, as_subsets
from ksdmin._result import MESSAGES, History, Result, Status
from ksdmin._run.evaluator import Budget, Ledger
from ksdmin._run.explain import explained
from ksdmin._run.run import LEDGER, Run
from ksdmin._run.state import State
from ksdmin._run.stop import verdict


class Method(NamedTuple):
    """What a method of this package brings.

    Attributes
    ----------
    options : type
        The class of its options.
    prepare : callable
        (run, options, traits) -> the run with what the method adds to it.
    start, step : callable
        (run, ledger, x0) -> state, and (run, state) -> state.
    escape : callable
        (run, state) -> (state, whether it lies further down): where the gradient has vanished.
    extras : callable
        (run, state) -> fields of the result that only this method has.
    """

    options: type[MethodOptions]
    prepare: Callable[..., Any]
    start: Callable[..., Any]
    step: Callable[..., Any]
    escape: Callable[..., tuple[Any, bool]]
    extras: Callable[..., dict[str, Any]]


def no_escape(run: Run, state: State) -> tuple[State, bool]:
    """No way down is looked for."""
    return state, False


def no_extras(run: Run, state: State) -> dict[str, Any]:
    """SciPy's fields are all."""
    return {}


KSD = Method(Options, start.prepare, start.start, ksd.step, saddle.escape, learned_curvature)
HF = Method(HFOptions, hf.prepare, hf.start, hf.step, no_escape, no_extras)
METHODS = {"ksd": KSD, "hf": HF}


def solve(
    problem: Problem,
    x0: Any,
    callback: Callable[..., Any] | None,
    options: MethodOptions,
    rng: Any,
    subsets: Any = None,
    bounds: Any = None,
    *,
    method: Method = KSD,
    catch_interrupt: bool = True,
) -> OptimizeResult:
    """Minimise `problem` from `x0`; the arguments are those of ``minimize``.

    An exception in user code passes unchanged, with the result so far as its attribute
    ``ksdmin_result``; so does Ctrl-C where `catch_interrupt` is False.
    """
    x0 = start_point(problem, x0)
    space = space_of_run(x0)
    x0 = space.taken(x0)
    box = as_box(bounds, x0)
    x0 = started(box, x0, frames=3)
    if box is not None and isinstance(problem, FunctionProblem):
        problem = problem.within(box)
    sets = resolve_subsets(problem, subsets)
    ledger = Ledger(problem_of_run(problem, space))
    run = method.prepare(make_run(space, sets, options, rng, box), options, ledger.problem.traits)
    state: State | None = None
    with Observer(callback, options, space) as observer:
        try:
            state = method.start(run, ledger, space.copy(x0))
            while True:
                status = observer.see(state) or verdict(run, state)
                escaped = False
                if status == Status.CONVERGED:
                    state, escaped = method.escape(run, state)
                if status is not None and not escaped:
                    break
                state = state if escaped else method.step(run, state)
            result = finish(run, state, observer, status)
            result.update(method.extras(run, state))
            return result
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            status = Status.INTERRUPTED if interrupted else Status.FAILED
            ledger = vars(error).pop(LEDGER, state.ledger if state else ledger)
            result = cut_short(run, state, ledger, observer, status, x0)
            if interrupted and catch_interrupt:
                return result
            with suppress(Exception):  # an exception may refuse attributes
                error.ksdmin_result = result  # type: ignore[attr-defined]
            raise


def start_point(problem: Problem, x0: Any) -> Array:
    """Where to start: `x0`, or the problem's own."""
    x0 = getattr(problem, "x0", None) if x0 is None else x0
    if x0 is None:
        raise TypeError("x0 is missing, and the problem does not bring its own")
    return as_vector(x0)


def resolve_subsets(problem: Problem, subsets: Any) -> Subsets:
    """The sets to sample: the caller's, the problem's own, or everything at once."""
    own = getattr(problem, "subsets", None)
    if isinstance(problem, FunctionProblem) and own is None and subsets is not None:
        raise ValueError(
            "subsets= beside a problem whose functions take no idx: give subsets to as_problem"
        )
    if subsets is None:
        return PLAIN if own is None else as_subsets(own)
    sets = as_subsets(subsets)
    if own is None:
        return sets
    n = as_subsets(own).n
    if n is not None and sets.n is not None and sets.n != n:
        raise ValueError(
            f"subsets: {sets.n} samples, but the problem has {n}: leave subsets out, or pass "
            f"ksdmin.Subsets({n}, ...)"
        )
    return as_subsets(own).adopting(sets)


def make_run(
    space: Space, subsets: Subsets, options: MethodOptions, rng: Any, box: Box | None = None
) -> Run:
    """What stays the same during a run of any method."""
    sampled = subsets is not PLAIN
    maxiter = options.maxiter
    if maxiter is None:
        maxiter = 1000 if sampled else 200 * space.n
    seed = np.random.default_rng(rng).integers(0, 2**32, size=4) if sampled else ()
    return Run(
        space=space,
        subsets=subsets,
        options=options,
        budget=Budget(options.maxfun, options.maxtime),
        seed=tuple(int(word) for word in seed),
        maxiter=maxiter,
        box=box,
    )


class Point(NamedTuple):
    """Where a result stands: `gradient` is None where it is not known."""

    x: Array
    value: float
    gradient: Array | None


def finish(run: Run, state: State, observer: Observer, status: Status) -> OptimizeResult:
    """The result: the best point seen, but the last one where it passed the test or the callback.

    `fun` and `jac` are those of the whole set at `x`; where they are not known yet they are
    computed, and counted.
    """
    with run.evaluating(state.ledger) as evaluator:
        here, full = state.here, run.subsets.full
        on_part = full is not None and not run.subsets.is_full(here.idx)
        if on_part and np.isfinite(here.value):
            here = evaluator.evaluate(here.x, full)
            if run.stationarity(here.x, here.gradient) <= run.options.gtol:
                status = Status.CONVERGED
        point, best = Point(here.x, here.value, here.gradient), evaluator.best
        ended_here = status in (Status.CONVERGED, Status.CALLBACK)
        if not ended_here and best is not None and not here.value <= best[1]:
            gradient = evaluator.evaluate(best[0], full).gradient
            norm = run.stationarity(best[0], gradient)
            if not np.isfinite(norm) and np.isfinite(best[1]):
                status = Status.NOT_FINITE  # a value without a slope: `here` has both
            else:
                point = Point(*best, gradient)
                status = Status.CONVERGED if norm <= run.options.gtol else status
        message = explained(run, evaluator, state, status, *point)
        return make_result(run, state, evaluator.ledger, observer, status, point, message)


def cut_short(
    run: Run,
    state: State | None,
    ledger: Ledger,
    observer: Observer,
    status: Status,
    x0: Array,
) -> OptimizeResult:
    """The result where user code has just failed: the best point seen, as far as it is known."""
    point = Point(x0, float("nan"), None)
    if state is not None:
        here, full = state.here, run.subsets.full
        on_part = full is not None and not run.subsets.is_full(here.idx)
        known = (float("nan"), None) if on_part else (here.value, here.gradient)
        point = Point(here.x, *known)
    if ledger.best is not None and not point.value <= ledger.best[1]:
        point = Point(*ledger.best, None)
    return make_result(run, state, ledger, observer, status, point, MESSAGES[status])


def make_result(
    run: Run,
    state: State | None,
    ledger: Ledger,
    observer: Observer,
    status: Status,
    point: Point,
    message: str,
) -> OptimizeResult:
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
        success=status == Status.CONVERGED,
        message=message,
        passes=counts.passes,
        history=History(observer.records),
        preconditioner="diagonal" if ledger.problem.traits.has_diagonal else "identity",
    )
    if observer.allvecs is not None:
        result.allvecs = observer.allvecs
    if run.options.disp:
        print_summary(result)
    return result


def print_summary(result: OptimizeResult) -> None:
    """What ``disp=True`` shows, in SciPy's words: a failure is a warning too."""
    if result.success:
        print(result.message)
    else:
        warnings.warn(result.message, OptimizeWarning, stacklevel=5)
    print(f"         Current function value: {result.fun:f}")
    for name, label in (
        ("nit", "Iterations"),
        ("nfev", "Function evaluations"),
        ("njev", "Gradient evaluations"),
        ("nhev", "Hessian evaluations"),
    ):
        print(f"         {label}: {result[name]}")
