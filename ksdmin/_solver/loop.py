"""One run, from its arguments to an honest result: start, step, stop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from scipy.optimize import OptimizeResult

from ksdmin._options import MethodOptions
from ksdmin._problem.box import as_box, started
from ksdmin._problem.functions import FunctionProblem
from ksdmin._problem.hosted import problem_of_run, space_of_run
from ksdmin._problem.protocol import Problem
from ksdmin._result import Status
from ksdmin._run.evaluator import Ledger
from ksdmin._run.run import LEDGER
from ksdmin._run.state import State
from ksdmin._run.stop import verdict
from ksdmin._solver.ending import cut_short, finish
from ksdmin._solver.methods import KSD, Method
from ksdmin._solver.observer import Observer
from ksdmin._solver.setup import make_run, resolve_subsets, start_point


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
