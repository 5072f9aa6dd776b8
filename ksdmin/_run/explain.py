"""Why a run ended, in the words of its result: the status, and the cause where it is known."""

from __future__ import annotations

from ksdmin._problem.arrays import Array
from ksdmin._result import MESSAGES, Status
from ksdmin._run.evaluator import Evaluator
from ksdmin._run.run import Run


def explained(run: Run, evaluator: Evaluator, status: Status, value: float, g: Array) -> str:
    """The message for a run that ends with `value` and gradient `g`."""
    causes = {Status.PRECISION_LOSS: precision_loss}
    if status not in causes:
        return MESSAGES[status]
    return " ".join(filter(None, [MESSAGES[status], causes[status](run, evaluator, value)]))


def precision_loss(run: Run, evaluator: Evaluator, value: float) -> str:
    """How well the gradient is known, where it is made of differences."""
    gtol, error = run.options.gtol, evaluator.gradient_error * abs(value)
    if not evaluator.gradient_error:
        return ""
    if error < gtol:
        return "The gradient is made of differences: pass jac."
    return (
        f"The gradient is made of differences and known to about {error:.0e} only, and gtol is "
        f"{gtol:.0e}: pass jac, or a larger gtol."
    )
