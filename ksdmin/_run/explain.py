"""Why a run ended, in the words of its result: the status, and the cause where it is known."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from ksdmin._problem.arrays import Array, Space, to_host
from ksdmin._problem.subsets import Subsets
from ksdmin._problem.team import ALONE
from ksdmin._result import MESSAGES, TESTS, Status
from ksdmin._run.evaluator import Evaluated, Evaluator
from ksdmin._run.gradient_check import contradiction, edge
from ksdmin._run.run import Run
from ksdmin._run.state import State
from ksdmin._run.stop import unit_free_test

FLOAT64_AT_MOST = 1e-10  # eps of float64 is below that, of float32 above


def explained(
    run: Run,
    evaluator: Evaluator,
    state: State,
    status: Status,
    point: Evaluated,
    bad: Evaluated | None = None,
) -> str:
    """The message for a run that ends at `point`; `bad` is a lower one without a gradient."""
    cause = ""
    if status in TESTS:
        cause = test_that_held(run, state, status, point)
    elif status == Status.TARGET:
        cause = f"fun {point.value:.6g} <= fmin {run.options.fmin:.6g}."
    elif status == Status.NOT_FINITE and bad is not None:
        cause = not_finite_gradient(run, evaluator, bad, "a lower point") + after(state)
    elif status == Status.NOT_FINITE:
        cause = not_finite(run, evaluator, state)
    elif status == Status.PRECISION_LOSS and state.held is not None:
        return f"{MESSAGES[status]} {state.held.text}"
    elif status == Status.PRECISION_LOSS and evaluator.gradient_error:
        cause = coarse_differences(run, evaluator, state, point.value)
    elif status == Status.PRECISION_LOSS and run.subsets.full is not None:
        cause = "" if evaluator.spent() else no_descent(run, evaluator, point)
    if status == Status.PRECISION_LOSS and (evaluator.gradient_error or not cause):
        cause = f"{cause} {few_digits(run.space)}".strip()
    return f"{MESSAGES[status]} {cause}".rstrip()


def test_that_held(run: Run, state: State, status: Status, point: Evaluated) -> str:
    """Which test of convergence holds, with its numbers."""
    held = unit_free_test(run, state) if state.tests_itself else None
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
    """How to have more digits, where the run was in float32."""
    if space.eps < FLOAT64_AT_MOST:
        return ""
    mend = {
        "jax": 'jax.config.update("jax_enable_x64", True) before arrays are made',
        "torch": "x0.double(), or net.double() and its data",
    }.get(space.library, "x0.astype(float)")
    return f"The run was in float32; float64 has nine digits more: {mend}."


def not_finite(run: Run, evaluator: Evaluator, state: State) -> str:
    """What is not finite, and where."""
    here, first = state.here, state.record.iteration == 0
    where = "x0" if first else "x"
    if not math.isfinite(here.value):
        mend = ": start where it is finite." if first else "."
        if samples := not_finite_samples(run, evaluator, here):
            advice = "look at the data, or start elsewhere" if first else "look at the data"
            mend = f", because of {blamed(samples)}: {advice}."
        return f"fun({where}) is {here.value}{mend}"
    if not math.isfinite(run.space.max_abs(here.gradient)):
        cause = not_finite_gradient(run, evaluator, here, where)
        return cause + ("" if first else after(state))
    if state.broken:
        return f"The curvature at {where} (hess or hessp) gives no finite product."
    return ""


def not_finite_gradient(run: Run, evaluator: Evaluator, here: Evaluated, where: str) -> str:
    """Which entries of a gradient are not finite, and what x is there."""
    about = (
        f"The gradient at {where} has entries that are not finite, the value is {here.value:.6g}"
    )
    if evaluator.gradient_error:  # the user knows of no gradient
        about = f"fun is not finite beside {where}, so that its differences are not, either"
    g, x = to_host(here.gradient), to_host(here.x)
    wrong = [i for i, entry in enumerate(g.tolist()) if not math.isfinite(entry)]
    named = ", ".join(f"{g[i]} in entry {i}, where x[{i}] is {x[i]:.6g}" for i in wrong[:MOST])
    more = f", and {len(wrong) - MOST} more" if len(wrong) > MOST else ""
    return f"{about}: {named}{more}."


def after(state: State) -> str:
    """When a run ended."""
    return f" The run ended after iteration {state.record.iteration}."


def blamed(samples: list[int]) -> str:
    """Samples whose values are not finite, in words."""
    named = ", ".join(map(str, samples))
    more = " and perhaps others" if len(samples) == MOST else ""
    return f"sample {named}" if len(samples) == 1 else f"the samples {named}{more}"


def no_descent(run: Run, evaluator: Evaluator, there: Evaluated) -> str:
    """Why values along the gradient do not fall: it is wrong, or fun ends there."""
    cause = edge(run, evaluator, there) or contradiction(run, evaluator, there)
    return cause[:1].upper() + cause[1:] if cause.startswith("the ") else cause


def coarse_differences(run: Run, evaluator: Evaluator, state: State, value: float) -> str:
    """How well a gradient made of differences is known."""
    gtol, error = run.gradient_target(state.first_norm), evaluator.gradient_error * abs(value)
    of_jax = run.space.library == "jax"  # it could not be traced, or minimize would have done so
    mend = "pass jac, or write fun with jax.numpy for ksdmin.from_jax" if of_jax else "pass jac"
    if error < gtol:
        return f"The gradient is made of differences: {mend}."
    return (
        f"The gradient is made of differences and known to about {error:.0e} only, and gtol is "
        f"{gtol:.0e}: {mend}, or a larger gtol."
    )


# Which samples a value is not finite for, by halving: at most two passes for each


MOST = 3  # samples that are named

Rows = npt.NDArray[np.int64]


def not_finite_samples(run: Run, evaluator: Evaluator, here: Evaluated) -> list[int]:
    """A few samples whose own values are not finite at a point whose value is not.

    None where samples have no numbers (the user's own sets, blocks of residuals), are spread over
    processes, or where there is no time left; and where the point is to blame: if all are bad.
    """
    numbered = type(run.subsets) is Subsets and run.subsets.n is not None and run.subsets.n > 1
    if not numbered or run.team is not ALONE or evaluator.spent():
        return []
    rows, found = _rows(run, here.idx), []
    for sample in _found(run, evaluator, here.x, rows):
        found.append(sample)
        if len(found) == MOST:
            break
    return [] if found == rows[:MOST].tolist() else found


def _found(run: Run, evaluator: Evaluator, x: Array, rows: Rows) -> Iterator[int]:
    """The samples whose own values are not finite, one after the other."""
    with suppress(Exception):  # a function may fail on a part: nothing more is said then
        while len(rows) and not _is_finite(run, evaluator, x, rows):
            at = _first(run, evaluator, x, rows)
            if _is_finite(run, evaluator, x, rows[at : at + 1]):
                return  # all are finite, and only their mean is not
            yield int(rows[at])
            rows = rows[at + 1 :]


def _rows(run: Run, idx: Any) -> Rows:
    """The numbers of the samples of a set."""
    if run.subsets.is_full(idx):
        return np.arange(run.subsets.n or 0)
    return np.asarray(to_host(idx), dtype=np.int64)


def _first(run: Run, evaluator: Evaluator, x: Array, rows: Rows) -> int:
    """The place of the first sample that is to blame, if any is."""
    low, high = 0, len(rows)
    while high - low > 1:
        middle = (low + high) // 2
        if _is_finite(run, evaluator, x, rows[low:middle]):
            low = middle
        else:
            high = middle
    return low


def _is_finite(run: Run, evaluator: Evaluator, x: Array, rows: Rows) -> bool:
    return math.isfinite(evaluator.value(x, run.space.indices(rows)))
