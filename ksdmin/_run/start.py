"""How every run begins: the value and gradient at the start."""

from __future__ import annotations

import math
from typing import Any

from ksdmin._problem.arrays import Array
from ksdmin._run.evaluator import Evaluated, Evaluator
from ksdmin._run.gradient_check import warn_if_contradicted
from ksdmin._run.record import write_record
from ksdmin._run.run import Run
from ksdmin._run.state import Sampling, lowest_sensible


def first_fields(
    run: Run, evaluator: Evaluator, sampling: Sampling, x0: Array, *, diagonal: bool = True
) -> dict[str, Any]:
    """The fields that every method's first state has; see :class:`ksdmin._run.state.State`."""
    here = evaluator.evaluate(x0, sampling.sets.A, diagonal=diagonal)  # Alg. 3, lines 4 and 5
    here = run.confirm_on_whole_set(evaluator, here, math.nan)
    warn_if_contradicted(run, evaluator, here)
    norm = run.stationarity(here.x, here.gradient)
    return {
        "here": here,
        "gradient_norm": norm,
        "first_norm": first_norm(run, evaluator, here, norm),
        "sampling": sampling,
        "ledger": evaluator.ledger,
        "last_decrease": math.nan,
        "lowest": lowest_sensible(here.value),
        "broken": False,
        "record": write_record(evaluator, 0, here, norm, sampling.sets),
    }


def first_norm(run: Run, evaluator: Evaluator, here: Evaluated, norm: float) -> float:
    """What `gtol_rel` is relative to: of a partial A it is computed only where it is asked for."""
    full = run.subsets.full
    if full is None or run.subsets.is_full(here.idx):
        return math.nan if full is None else norm
    if not run.options.gtol_rel:
        return math.nan
    return run.stationarity(here.x, evaluator.evaluate(here.x, full, diagonal=False).gradient)
