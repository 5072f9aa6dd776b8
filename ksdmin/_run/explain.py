"""Why a run ended, in the words of its result: the status, and the cause where it is known."""

from __future__ import annotations

import math

from ksdmin._problem.arrays import Array
from ksdmin._result import MESSAGES, Status
from ksdmin._run.evaluator import Evaluated, Evaluator
from ksdmin._run.gradient_check import contradiction, edge
from ksdmin._run.not_finite_samples import MOST, not_finite_samples
from ksdmin._run.run import Run
from ksdmin._run.state import State


def explained(
    run: Run,
    evaluator: Evaluator,
    state: State,
    status: Status,
    x: Array,
    value: float,
    g: Array | None,
) -> str:
    """The message for a run that ends at `x` with `value` and gradient `g`."""
    cause = ""
    if status == Status.NOT_FINITE:
        cause = not_finite(run, evaluator, state)
    elif status == Status.PRECISION_LOSS and evaluator.gradient_error:
        cause = coarse_differences(run, evaluator, value)
    elif status == Status.PRECISION_LOSS and g is not None and run.subsets.full is not None:
        there = Evaluated(x, run.subsets.full, value, g)
        cause = "" if evaluator.spent() else no_descent(run, evaluator, there)
    return f"{MESSAGES[status]} {cause}".rstrip()


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
        return f"The gradient at {where} has entries that are not finite, the value is finite."
    if state.broken:
        return f"The curvature at {where} (hess or hessp) gives no finite product."
    return ""


def blamed(samples: list[int]) -> str:
    """Samples whose values are not finite, in words."""
    named = ", ".join(map(str, samples))
    more = " and perhaps others" if len(samples) == MOST else ""
    return f"sample {named}" if len(samples) == 1 else f"the samples {named}{more}"


def no_descent(run: Run, evaluator: Evaluator, there: Evaluated) -> str:
    """Why values along the gradient do not fall: it is wrong, or fun ends there."""
    cause = edge(run, evaluator, there) or contradiction(run, evaluator, there)
    return cause[:1].upper() + cause[1:] if cause.startswith("the ") else cause


def coarse_differences(run: Run, evaluator: Evaluator, value: float) -> str:
    """How well a gradient made of differences is known."""
    gtol, error = run.options.gtol, evaluator.gradient_error * abs(value)
    if error < gtol:
        return "The gradient is made of differences: pass jac."
    return (
        f"The gradient is made of differences and known to about {error:.0e} only, and gtol is "
        f"{gtol:.0e}: pass jac, or a larger gtol."
    )
