"""One run of Krylov Subspace Descent, from its arguments to an honest result."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult, OptimizeWarning

from ksdmin._hf import step as _hf
from ksdmin._ksd import step as _ksd
from ksdmin._ksd.dimensions import choose_dimensions, choose_parts
from ksdmin._ksd.judge import verdict
from ksdmin._ksd.saddle import escape
from ksdmin._ksd.state import Run, State
from ksdmin._observer import Observer
from ksdmin._options import Options
from ksdmin._problem.arrays import Array, Space, as_vector
from ksdmin._problem.box import Box, as_box, started
from ksdmin._problem.functions import FunctionProblem, Problem
from ksdmin._problem.subsets import Subsets, as_subsets
from ksdmin._result import MESSAGES, History, Result, Status
from ksdmin._run.evaluator import Evaluator


class Method(NamedTuple):
    """What differs between the methods of this package.

    Attributes
    ----------
    start, step : callable
        (run, x0) -> state, and (run, state) -> state.
    escape : callable
        (run, state) -> a state further down, or None: where the gradient has vanished.
    parts : tuple of int
        The sets B and C have the share 1 / parts of the samples, unless asked for otherwise: of
        few samples the first number, of very many the second.
    inner_maxiter : int or None
        Of the inner iterations, where not given; None: the dimension of the Krylov space.
    """

    start: Callable[[Run, Array], State]
    step: Callable[[Run, State], State]
    escape: Callable[[Run, State], State | None]
    parts: tuple[int, int]
    inner_maxiter: int | None


KSD = Method(_ksd.start, _ksd.step, escape, parts=(20, 40), inner_maxiter=None)
HF = Method(_hf.start, _hf.step, lambda run, state: None, parts=(8, 8), inner_maxiter=250)
METHODS = {"ksd": KSD, "hf": HF}
PLAIN = Subsets(1)  # a plain function is a sum of one loss: every set is the whole


def solve(
    problem: Problem,
    x0: Any,
    callback: Callable[..., Any] | None,
    options: Options,
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
    box = as_box(bounds, x0)
    x0 = started(box, x0, frames=3)
    if box is not None and isinstance(problem, FunctionProblem):
        problem = problem.within(box)
    sets = resolve_subsets(problem, subsets)
    run = prepare(problem, Space(x0), sets, options, rng, box, method)
    state: State | None = None
    with Observer(callback, options, run.space) as observer:
        try:
            state = method.start(run, run.space.copy(x0))
            while True:
                status = observer.see(state) or verdict(run, state)
                lower = method.escape(run, state) if status == Status.CONVERGED else None
                if status is not None and lower is None:
                    break
                state = lower or method.step(run, state)
            return finish(run, state, observer, status, x0)
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            status = Status.INTERRUPTED if interrupted else Status.FAILED
            result = finish(run, state, observer, status, x0, evaluate=False)
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
    subsets = own if subsets is None else subsets
    return PLAIN if subsets is None else as_subsets(subsets)


def prepare(
    problem: Problem,
    space: Space,
    subsets: Subsets,
    options: Options,
    rng: Any,
    box: Box | None = None,
    method: Method = KSD,
) -> Run:
    """What stays the same during the run; defaults that depend on the problem are chosen here."""
    sampled = subsets is not PLAIN
    evaluator = Evaluator(problem, space, subsets, options.maxfun, options.maxtime)
    parts = options.krylov_dim or choose_parts(evaluator, *method.parts)
    dims = choose_dimensions(space, options, parts if sampled else None, evaluator.nonlinear)
    maxiter = options.maxiter
    if maxiter is None:
        maxiter = 1000 if sampled else 200 * space.n
    seed = np.random.default_rng(rng).integers(0, 2**32, size=4) if sampled else ()
    return Run(
        evaluator=evaluator,
        options=options,
        draw=subsets.draws(),
        seed=tuple(int(word) for word in seed),
        maxiter=maxiter,
        parts=int(parts),
        dims=dims,
        inner_maxiter=int(options.inner_maxiter or method.inner_maxiter or dims.whole_dim),
        box=box,
    )


def finish(
    run: Run,
    state: State | None,
    observer: Observer,
    status: Status,
    x0: Array,
    *,
    evaluate: bool = True,
) -> OptimizeResult:
    """The result: the best point seen, but the last one where it passed the test or the callback.

    `fun` and `jac` are those of the whole set at `x`; where they are not known yet they are
    computed, and counted, unless user code has just failed (`evaluate` is False).
    """
    evaluator, subsets = run.evaluator, run.evaluator.subsets
    x, value, g = x0, float("nan"), None
    if state is not None:
        x, value, g = state.here.x, state.here.value, state.here.gradient
        on_part = subsets.full is not None and not subsets.is_full(state.here.idx)
        if on_part and not evaluate:
            value, g = float("nan"), None
        elif on_part and np.isfinite(value):
            there = evaluator.evaluate(x, subsets.full)
            value, g = there.value, there.gradient
            if run.stationarity(x, g) <= run.options.gtol:
                status = Status.CONVERGED
    best = evaluator.best
    if (
        status not in (Status.CONVERGED, Status.CALLBACK)
        and best is not None
        and not value <= best[1]
    ):
        best_gradient = evaluator.evaluate(best[0], subsets.full).gradient if evaluate else None
        norm = run.stationarity(best[0], best_gradient) if evaluate else np.inf
        if evaluate and not np.isfinite(norm) and np.isfinite(best[1]):
            status = Status.NOT_FINITE  # a value without a slope: `here` has both
        else:
            x, value, g = *best, best_gradient
            status = Status.CONVERGED if norm <= run.options.gtol else status
    return make_result(run, state, observer, status, (run.space.copy(x), value, g))


def make_result(
    run: Run,
    state: State | None,
    observer: Observer,
    status: Status,
    point: tuple[Array, float, Array | None],
) -> OptimizeResult:
    """SciPy's fields, and ours."""
    counts = run.evaluator.counts
    result = Result(
        x=point[0],
        fun=point[1],
        jac=point[2],
        nit=state.record.iteration if state else 0,
        nfev=counts.nfev,
        njev=counts.njev,
        nhev=counts.nhev,
        status=int(status),
        success=status == Status.CONVERGED,
        message=MESSAGES[status],
        passes=counts.passes,
        history=History(observer.records),
        preconditioner="diagonal" if run.evaluator.has_diagonal else "identity",
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
