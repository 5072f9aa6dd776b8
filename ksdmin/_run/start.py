"""How every run begins: the value and gradient at the start."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ksdmin._problem.arrays import Array
from ksdmin._problem.slope_check import (
    longest_step,
    slope_over_longer_steps,
    slope_ratio,
    step_length,
    wrong_entries,
)
from ksdmin._problem.user_values import frames_to_the_user
from ksdmin._run.evaluator import Evaluated, Evaluator
from ksdmin._run.run import Run, Sampling, lowest_sensible, write_record


def first_fields(
    run: Run, evaluator: Evaluator, sampling: Sampling, x0: Array, *, diagonal: bool = True
) -> dict[str, Any]:
    """The fields that every method's first state has; see :class:`ksdmin._run.run.State`."""
    here = evaluator.evaluate(x0, sampling.sets.A, diagonal=diagonal)  # Alg. 3, lines 4 and 5
    here = run.confirm_on_whole_set(evaluator, here, math.nan)
    warn_if_contradicted(run, evaluator, here)
    norm, full = run.stationarity(here.x, here.gradient), run.subsets.full
    first_norm = math.nan  # what `gtol_rel` is relative to; of a partial A only where it is needed
    if full is not None and run.subsets.is_full(here.idx):
        first_norm = norm
    elif full is not None and run.options.gtol_rel:
        whole = evaluator.evaluate(here.x, full, diagonal=False)
        first_norm = run.stationarity(here.x, whole.gradient)
    return {
        "here": here,
        "gradient_norm": norm,
        "first_norm": first_norm,
        "sampling": sampling,
        "ledger": evaluator.ledger,
        "last_decrease": math.nan,
        "lowest": lowest_sensible(here.value),
        "broken": False,
        "record": write_record(evaluator, 0, here, norm, sampling.sets),
    }


TOO_LARGE = 0.1  # jac contradicts fun if the slope of fun is less than this share of what jac says

HOW_TO_CHECK = (
    "scipy.optimize.check_grad compares them. (In a torch model, look for .detach() and for "
    "derivatives without create_graph=True, in jax for stop_gradient.)"
)


def warn_if_contradicted(run: Run, evaluator: Evaluator, here: Evaluated) -> None:
    """Warn if the gradient contradicts `fun` at the start; costs one value if it does not."""
    if evaluator.spent():
        return
    if run.space.max_abs(here.gradient) == 0:
        warning = vanished_gradient(run, evaluator, here)
    elif not evaluator.problem.gradient_is_written:
        return
    elif warning := contradiction(run, evaluator, here):
        warning = f"jac contradicts fun at x0: {warning}{entries(run, evaluator, here)}"
    if warning:
        warnings.warn(warning, RuntimeWarning, stacklevel=frames_to_the_user())


def contradiction(run: Run, evaluator: Evaluator, here: Evaluated) -> str:
    """What is wrong with the gradient; empty if values agree with it, or cannot tell."""
    value_at, movable = beside(run, evaluator, here)
    with np.errstate(all="ignore"):
        ratio = slope_ratio(
            value_at, here.x, here.value, here.gradient, run.space, evaluator.noise, movable
        )
    if ratio is None:
        return ""
    if ratio < 0:
        return f"fun rises along -jac: check jac, and its sign; {HOW_TO_CHECK}"
    if ratio < TOO_LARGE:
        size = f"{1 / ratio:.3g} times" if ratio > 1e-12 else "far"
        return f"jac is {size} too large along itself: check it; {HOW_TO_CHECK}"
    return f"the slope of fun along jac is {ratio:.2g} times what jac says; {HOW_TO_CHECK}"


def vanished_gradient(run: Run, evaluator: Evaluator, here: Evaluated, where: str = "x0") -> str:
    """Whether a gradient of zeros is wrong, in words; differences may be by rounding."""
    if run.box is not None:
        return ""
    value_at, _ = beside(run, evaluator, here)
    slope = slope_over_longer_steps(value_at, here.x, here.value, run.space)
    if slope <= run.gradient_target(0.0):
        return ""
    if not evaluator.gradient_error:
        return (
            f"the gradient is zero at {where}, but fun has a slope of {slope:.2g}: {HOW_TO_CHECK}"
        )
    return (
        f"all differences of fun at {where} are zero, but over longer steps it has a slope of "
        f"{slope:.2g}: fun is rounded to fewer digits than x0 has. Compute it in float64, pass "
        "jac, or pass x0 in float32, where the steps of differences are longer"
    )


def entries(run: Run, evaluator: Evaluator, here: Evaluated) -> str:
    """Which entries are wrong, if there are few unknowns."""
    value_at, movable = beside(run, evaluator, here)
    named = wrong_entries(value_at, here.x, here.value, here.gradient, run.space, movable)
    said = [f"entry {i} of jac is {g:.3g}, differences say {d:.3g}" for i, g, d in named]
    return f" At x0 {'; '.join(said)}." if said else ""


def edge(run: Run, evaluator: Evaluator, here: Evaluated) -> str:
    """A hint if `fun` is not finite one step further down."""
    value_at, movable = beside(run, evaluator, here)
    free = movable(here.gradient)
    size = run.space.norm(free)
    if not 0 < size < math.inf:
        return ""
    h = step_length(run.space, here.x, here.value, size, evaluator.noise)
    value = value_at(here.x - h / size * free)
    if math.isfinite(value):
        return ""
    return (
        f"fun is {value} after a step of {h:.0e} downhill: x lies at the edge of the region where "
        "fun is finite. If that edge is a bound on a variable, bounds= keeps a run inside."
    )


def beside(
    run: Run, evaluator: Evaluator, here: Evaluated
) -> tuple[Callable[[Array], float], Callable[[Array], Array]]:
    """Values near `here`; and a function that zeroes components that are too close to a bound."""

    def value_at(x: Array) -> float:
        return evaluator.value_beside(x, here.idx)

    box = run.box
    if box is None:
        return value_at, lambda u: u
    reach = longest_step(run.space, here.x)
    xp, low, high = run.space.xp, here.x - box.lower, box.upper - here.x
    room = (low > reach) & (high > reach)
    return value_at, lambda u: xp.where(room, u, xp.zeros_like(u))
