"""Why a run ended, in the words of its result: the status, and the cause where it is known."""

from __future__ import annotations

import math

from ksdmin._problem.arrays import Array, Space
from ksdmin._result import MESSAGES, Status
from ksdmin._run.evaluator import Evaluator
from ksdmin._run.not_finite_samples import MOST, not_finite_samples
from ksdmin._run.run import Run
from ksdmin._run.state import State

SMOOTH = 0.1  # slopes on either side of a point that differ by less, relatively, are of one slope
FLOAT64_AT_MOST = 1e-10  # eps of float64 is below that, of float32 above
AGREES = 0.5, 2.0  # between these times the slope that jac says, it may be right


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
        cause = wrong_gradient(run, evaluator, x, value, g)
    if status == Status.PRECISION_LOSS and (evaluator.gradient_error or not cause):
        cause = f"{cause} {few_digits(run.space)}".strip()
    return f"{MESSAGES[status]} {cause}".rstrip()


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
        return f"The gradient at {where} has entries that are not finite, the value is finite."
    if state.broken:
        return f"The curvature at {where} (hess or hessp) gives no finite product."
    return ""


def blamed(samples: list[int]) -> str:
    """Samples whose values are not finite, in words."""
    named = ", ".join(map(str, samples))
    more = " and perhaps others" if len(samples) == MOST else ""
    return f"sample {named}" if len(samples) == 1 else f"the samples {named}{more}"


def coarse_differences(run: Run, evaluator: Evaluator, value: float) -> str:
    """How well a gradient made of differences is known."""
    gtol, error = run.options.gtol, evaluator.gradient_error * abs(value)
    of_jax = run.space.library == "jax"  # it could not be traced, or minimize would have done so
    mend = "pass jac, or write fun with jax.numpy for ksdmin.from_jax" if of_jax else "pass jac"
    if error < gtol:
        return f"The gradient is made of differences: {mend}."
    return (
        f"The gradient is made of differences and known to about {error:.0e} only, and gtol is "
        f"{gtol:.0e}: {mend}, or a larger gtol."
    )


def wrong_gradient(run: Run, evaluator: Evaluator, x: Array, value: float, g: Array) -> str:
    """Whether values along the gradient contradict it, by two differences.

    Made only where rounding cannot hide the slope, and believed only where the function is smooth:
    where both differences agree.
    """
    if evaluator.spent():
        return ""
    free = g if run.box is None else run.box.without(g, run.box.held(x, g))
    size, space = run.space.norm(free), run.space
    h = space.eps ** (1 / 3) * max(1.0, space.max_abs(x))
    if not math.isfinite(size) or evaluator.noise * abs(value) > SMOOTH / 2 * h * size:
        return ""
    d = free / size
    ends = [x + h * d, x - h * d]
    if run.box is not None and not all(run.box.contains(end) for end in ends):
        return ""
    up, down = (evaluator.value(end, run.subsets.full) for end in ends)
    forth, back, known = (up - value) / h, (value - down) / h, evaluator.noise * abs(value) / h
    if not abs(forth - back) <= SMOOTH * max(abs(forth), abs(back), size) + known:
        return ""
    return contradiction((forth + back) / 2 / size)


def contradiction(ratio: float) -> str:
    """What to say where the slope of fun along jac is `ratio` times what jac says."""
    check = (
        "scipy.optimize.check_grad compares them. (In a torch model, look for .detach() and for "
        "derivatives without create_graph=True.)"
    )
    if AGREES[0] <= ratio <= AGREES[1]:
        return ""
    if ratio < 0:
        return f"fun rises along -jac: check jac, and its sign; {check}"
    if ratio < AGREES[0] / 5:
        size = f"{1 / ratio:.0e} times" if ratio > 1e-12 else "far"
        return f"jac is {size} too large along itself: check it; {check}"
    return f"The slope of fun along jac is {ratio:.1g} times what jac says: check it; {check}"
