"""How a run ends: the test or the limit that ended it, its message and its result."""

from __future__ import annotations

import math
import warnings
from contextlib import suppress

import numpy as np
import numpy.typing as npt
from scipy.optimize import OptimizeResult, OptimizeWarning

from ksdmin._problem.arrays import Array, Space, to_host
from ksdmin._problem.subsets import Subsets
from ksdmin._problem.team import ALONE
from ksdmin._problem.user_values import frames_to_the_user
from ksdmin._problem.values import changed
from ksdmin._result import MESSAGES, SUCCESSES, TESTS, History, Result, Status
from ksdmin._run.evaluator import Evaluated, Evaluator, Ledger
from ksdmin._run.fit_tests import FitTests, Held
from ksdmin._run.observer import Observer
from ksdmin._run.run import Run, State
from ksdmin._run.start import contradiction, edge, vanished_gradient


def finish(run: Run, state: State, observer: Observer, status: Status) -> Result:
    """The result: the best point seen; the last if it passed a test, or the callback ended there.

    `fun` and `jac` are those of the whole set at `x`. If they are not known yet they are
    computed, and counted.
    """
    with run.evaluating(state.ledger) as evaluator:
        here, full, target = state.here, run.subsets.full, run.gradient_target(state.first_norm)
        on_part = full is not None and not run.subsets.is_full(here.idx)
        if on_part and np.isfinite(here.value):
            here = evaluator.evaluate(here.x, full, diagonal=False)
            if run.stationarity(here.x, here.gradient) <= target:
                status = Status.CONVERGED
        point, best, bad = here, evaluator.best, None
        ended_here = status in (*TESTS, Status.CALLBACK)
        if not ended_here and best is not None and not here.value <= best[1]:
            _, gradient = evaluator.value_and_gradient(best[0], full)
            lower = Evaluated(best[0], full, best[1], gradient)
            norm = run.stationarity(lower.x, gradient)
            if not np.isfinite(norm) and np.isfinite(lower.value):
                status, bad = Status.NOT_FINITE, lower  # without a gradient: `here` has both
            else:
                point, passed = lower, norm <= target and not state.tests_itself
                status = Status.CONVERGED if passed else status
        hidden = hidden_slope(run, evaluator, point) if status == Status.CONVERGED else ""
        status = Status.PRECISION_LOSS if hidden else status
        message = hidden or explained(run, evaluator, state, status, point, bad)
        average, averaged = observer.watched.average, math.nan
        if average is not None and full is not None:
            averaged = evaluator.value(average, full)
        ledger = evaluator.ledger
        return make_result(run, state, ledger, observer, status, point, message, averaged)


def cut_short(
    run: Run, state: State | None, ledger: Ledger, observer: Observer, status: Status, x0: Array
) -> Result:
    """The result after user code has failed: the best point seen, as far as it is known."""
    full, is_full = run.subsets.full, run.subsets.is_full
    point = Evaluated(x0, full, math.nan, None)
    if state is not None:
        point = state.here
        if full is not None and not is_full(point.idx):
            point = changed(point, value=math.nan, gradient=None)
    seen = [] if ledger.best is None else [ledger.best]
    known = ledger.problem.remembered()  # the run may have ended between a value and its gradient
    value = math.nan if known is None or known.value is None else known.value
    if known is not None and math.isfinite(value) and is_full(known.idx):
        seen.append((known.x, value))
    for x, value in seen:
        if not point.value <= value:
            point = Evaluated(x, full, value, None)
    return make_result(run, state, ledger, observer, status, point, MESSAGES[status])


def make_result(
    run: Run,
    state: State | None,
    ledger: Ledger,
    observer: Observer,
    status: Status,
    point: Evaluated,
    message: str,
    averaged: float = math.nan,
) -> Result:
    """SciPy's fields, and ours; a `gradient` of None is not known."""
    counts, traits, given = ledger.counts, run.traits_of(ledger.problem), run.space.given
    diagonal = "diagonal" if traits.has_diagonal else "identity"
    result = Result(
        x=given(point.x),
        fun=point.value,
        jac=None if point.gradient is None else given(point.gradient),
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
        preconditioner="kronecker" if traits.has_factors else diagonal,
    )
    watched = observer.watched
    if watched.allvecs is not None:
        result.allvecs = watched.allvecs
    if watched.average is not None:
        result.average = OptimizeResult(x=given(watched.average), fun=averaged)
    if watched.best is not None:
        result.validation = OptimizeResult(
            x=given(watched.best),
            fun=watched.best_value,
            nit=watched.best_iteration,
            is_average=watched.best_is_average,
        )
    return result


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


def verdict(run: Run, state: State) -> Status | None:
    """Why the run ends at `state`; None: it goes on."""
    here, sampling, options = state.here, state.sampling, run.options
    if here.value <= state.lowest and state.record.iteration:
        return Status.UNBOUNDED
    if not math.isfinite(here.value) or not math.isfinite(state.gradient_norm) or state.broken:
        return Status.NOT_FINITE
    best = state.ledger.best
    if best is not None and best[1] <= options.fmin:
        return Status.TARGET
    whole = not run.sampled or run.subsets.is_full(here.idx)
    converged = test_that_holds(run, state) if whole else None
    if converged is not None:
        return converged
    if sampling.exhausted:
        return Status.OUT_OF_SETS
    if state.record.iteration >= run.maxiter:
        return Status.MAXITER
    deterministic = whole and sampling.sets.B is here.idx and sampling.sets.C is here.idx
    spent = run.budget.spent(state.ledger.counts)
    if deterministic and state.stalled:
        return spent or Status.PRECISION_LOSS
    return spent


def test_that_holds(run: Run, state: State) -> Status | None:
    """Which test of convergence holds here, on the whole set."""
    if state.tests_itself:
        held = unit_free_test(run, state)
        if held is not None:
            return Status(held.status)
        relative = run.options.gtol_rel * state.first_norm
        return Status.CONVERGED if 0 < state.gradient_norm <= relative else None
    if run.unit_free and state.held is not None:
        return Status(state.held.status)
    if state.gradient_norm <= run.gradient_target(state.first_norm):
        return Status.CONVERGED
    return small_change(run, state)


def unit_free_test(run: Run, state: State) -> Held | None:
    """The test without units that holds; a fit makes its own."""
    here, problem = state.here, state.ledger.problem
    if state.is_fit or not problem.unit_free or state.held is not None:
        return state.held
    tests = FitTests.of(run.options)
    g = run.movable(here)(here.gradient)
    cosine = problem.largest_cosine(here.x, here.idx, g, here.value)
    if cosine is None:
        held = tests.of_operator(run.space.max_abs(g), state.first_norm)
    else:
        held = tests.of_point(cosine)
    length, decrease = state.record.step_norm, state.last_decrease
    if held is None and length and not math.isnan(decrease):
        size = run.space.norm(here.x)
        held = tests.of_step(decrease, 0.0, here.value + decrease, length, size)
    if held is None:
        return None
    left = problem.predicted_reduction(here.x, here.idx, g)
    return held if left is None or tests.confirmed(left, here.value) else None


def small_change(run: Run, state: State) -> Status | None:
    """Which of the tests ftol and xtol holds, for a step that was just taken and may count."""
    options, here, decrease = run.options, state.here, state.last_decrease
    if not state.record.step_norm or math.isnan(decrease):
        return None
    scale = max(abs(here.value), abs(here.value + decrease), 1.0)
    if options.ftol and 0 <= decrease <= options.ftol * scale:
        return Status.FTOL
    limit = options.xtol * max(1.0, run.space.norm(here.x)) if options.xtol else 0.0
    return Status.XTOL if state.record.step_norm <= limit else None


def hidden_slope(run: Run, evaluator: Evaluator, there: Evaluated) -> str:
    """The message where differences are zero for want of digits; empty where they are not."""
    if not evaluator.gradient_error or evaluator.spent() or run.space.max_abs(there.gradient):
        return ""
    cause = vanished_gradient(run, evaluator, there, "x")
    return f"{MESSAGES[Status.PRECISION_LOSS]} {cause[:1].upper()}{cause[1:]}." if cause else ""


FLOAT64_AT_MOST = 1e-10  # eps of float64 is below this, that of float32 above


def explained(
    run: Run,
    evaluator: Evaluator,
    state: State,
    status: Status,
    point: Evaluated,
    bad: Evaluated | None = None,
) -> str:
    """The message for a run that ends at `point`; `bad` is a lower point without a gradient."""
    cause = ""
    if status in TESTS:
        cause = test_that_held(run, state, status, point)
    elif status == Status.TARGET:
        cause = f"fun {point.value:.6g} <= fmin {run.options.fmin:.6g}."
    elif status == Status.NOT_FINITE and bad is not None:
        cause = not_finite_gradient(run, evaluator, state, bad, "a lower point")
    elif status == Status.NOT_FINITE:
        cause = not_finite(run, evaluator, state)
    elif status == Status.PRECISION_LOSS and state.held is not None:
        return f"{MESSAGES[status]} {state.held.text}"
    elif status == Status.PRECISION_LOSS and evaluator.gradient_error:
        cause = "" if evaluator.spent() else edge(run, evaluator, point)
        cause = cause or coarse_differences(run, evaluator, state, point.value)
    elif status == Status.PRECISION_LOSS and run.subsets.full is not None:
        if not evaluator.spent():  # a wrong gradient, or fun ends there
            cause = edge(run, evaluator, point) or contradiction(run, evaluator, point)
        cause = cause[:1].upper() + cause[1:] if cause.startswith("the ") else cause
    if status == Status.PRECISION_LOSS and (evaluator.gradient_error or not cause):
        cause = f"{cause} {few_digits(run.space)}".strip()
    return f"{MESSAGES[status]} {cause}".rstrip()


def test_that_held(run: Run, state: State, status: Status, point: Evaluated) -> str:
    """Which test of convergence holds, with its numbers."""
    held = unit_free_test(run, state) if state.tests_itself else state.held
    if held is not None and held.status == status:
        return held.text
    options = run.options
    norm = run.stationarity(point.x, point.gradient)
    gradient = "max |gradient|" if run.box is None else "max |projected gradient|"
    if status == Status.FTOL:
        fall = f"{state.last_decrease:.2g} <= ftol {options.ftol:.2g} * max(|f|, 1)"
        return f"The value fell by {fall} in the last iteration; {gradient} is {norm:.2g}."
    if status == Status.XTOL:
        length = f"{state.record.step_norm:.2g} <= xtol {options.xtol:.2g} * max(1, |x|)"
        return f"The last step has the length {length}; {gradient} is {norm:.2g}."
    if norm <= options.gtol:
        return f"{gradient} {norm:.2g} <= gtol {options.gtol:.2g}."
    return (
        f"{gradient} {norm:.2g} <= gtol_rel {options.gtol_rel:.2g} * {state.first_norm:.2g} at x0."
    )


def few_digits(space: Space) -> str:
    """How to get more digits, if the run was in float32."""
    if space.eps < FLOAT64_AT_MOST:
        return ""
    mend = {
        "jax": 'jax.config.update("jax_enable_x64", True) before arrays are made',
        "torch": "x0.double(), or net.double() and its data",
    }.get(space.library, "x0.astype(float)")
    return f"The run was in float32. Float64 has nine more digits: {mend}."


def not_finite(run: Run, evaluator: Evaluator, state: State) -> str:
    """What is not finite, and where."""
    here, first = state.here, state.record.iteration == 0
    where = "x0" if first else "x"
    if not math.isfinite(here.value):
        mend = ": start where it is finite, or look for such values in the data." if first else "."
        if samples := not_finite_samples(run, evaluator, here):
            named = "sample " if len(samples) == 1 else "the samples "
            named += ", ".join(map(str, samples))
            named += " and perhaps others" if len(samples) == MOST else ""
            mend = f", because of {named}: look at the data{', or start elsewhere' * first}."
        return f"fun({where}) is {here.value}{mend}"
    if not math.isfinite(run.space.max_abs(here.gradient)):
        return not_finite_gradient(run, evaluator, state, here, where)
    if not state.broken:
        return ""
    if evaluator.product_error:  # the user gave no products
        why = f"The gradient is not finite near {where}"
        return f"{why}, so products with the Hessian by its differences fail."
    return f"A product with the Hessian at {where} (hess or hessp) is not finite."


def not_finite_gradient(
    run: Run, evaluator: Evaluator, state: State, here: Evaluated, where: str
) -> str:
    """Which entries of a gradient are not finite, and x at these entries."""
    about = f"The gradient at {where} is not finite, and the value is {here.value:.6g}"
    if evaluator.gradient_error:  # the user gave no gradient
        about = f"fun is not finite near {where}, so finite differences fail"
    g, x = to_host(here.gradient), to_host(here.x)
    wrong = [i for i, entry in enumerate(g.tolist()) if not math.isfinite(entry)]
    named = ", ".join(f"{g[i]} in entry {i}, where x[{i}] is {x[i]:.6g}" for i in wrong[:MOST])
    more = f", and {len(wrong) - MOST} more" if len(wrong) > MOST else ""
    when = state.record.iteration
    end = f" The run ended after iteration {when}." if when else ""
    return f"{about}: {named}{more}.{end}"


def coarse_differences(run: Run, evaluator: Evaluator, state: State, value: float) -> str:
    """The error of a gradient by finite differences, and what to do about it."""
    gtol, error = run.gradient_target(state.first_norm), evaluator.gradient_error * abs(value)
    of_jax = run.space.library == "jax"  # otherwise minimize would have differentiated it
    mend = "pass jac, or write fun with jax.numpy for ksdmin.from_jax" if of_jax else "pass jac"
    if error < gtol:  # values have more noise than rounding
        digits = "or compute fun to more digits, if it integrates or iterates"
        kink = "Where fun has a kink at its minimum (abs, max), no gradient vanishes."
        return f"The gradient is a finite-difference estimate: {mend}, {digits}. {kink}"
    return (
        f"The gradient is a finite-difference estimate with an error of about {error:.0e}, and "
        f"gtol is {gtol:.0e}: {mend}, or a larger gtol."
    )


MOST = 3  # how many samples are named


def not_finite_samples(run: Run, evaluator: Evaluator, here: Evaluated) -> list[int]:
    """A few samples whose own values are not finite, at a point whose value is not.

    They are found by halving, with at most two passes for each. None if samples have no numbers
    (the user's own sets, blocks of residuals) or are spread over processes, if no time is left, or
    if all are bad, so that the point is to blame.
    """
    n = run.subsets.n or 0
    numbered = type(run.subsets) is Subsets and n > 1
    if not numbered or run.team is not ALONE or evaluator.spent():
        return []
    rows = np.arange(n) if run.subsets.is_full(here.idx) else to_host(here.idx).astype(np.int64)
    first: list[int] = rows[:MOST].tolist()
    found: list[int] = []

    def finite(part: npt.NDArray[np.int64]) -> bool:
        return math.isfinite(evaluator.value(here.x, run.space.indices(part)))

    with suppress(Exception):  # a function may fail on a part: then no more is said
        while len(found) < MOST and len(rows) and not finite(rows):
            low, high = 0, len(rows)
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if finite(rows[low:middle]) else (low, middle)
            if finite(rows[low : low + 1]):
                break  # all are finite, and only their mean is not
            found.append(int(rows[low]))
            rows = rows[low + 1 :]
    return [] if found == first else found
