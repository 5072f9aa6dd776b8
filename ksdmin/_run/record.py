"""The history of a run, one line per iteration."""

from __future__ import annotations

from math import nan

from ksdmin._problem.subsets import Sets
from ksdmin._problem.values import made
from ksdmin._result import Record
from ksdmin._run.evaluator import Evaluated, Evaluator


def write_record(
    evaluator: Evaluator,
    iteration: int,
    here: Evaluated,
    gradient_norm: float,
    sets: Sets,
    *,
    step_norm: float = 0.0,
    dim: int = 0,
    inner_iterations: int = 0,
    accepted: bool = True,
    kind: str = "",
) -> Record:
    """The line of the history for an iteration."""
    counts, size_of = evaluator.counts, evaluator.subsets.size_of
    size_A = size_of(here.idx)
    return made(
        Record,
        iteration=iteration,
        value=here.value,
        gradient_norm=gradient_norm,
        step_norm=step_norm,
        accepted=accepted,
        dim=dim,
        size_A=size_A,
        size_B=size_A if sets.B is here.idx else size_of(sets.B),
        size_C=size_A if sets.C is here.idx else size_of(sets.C),
        inner_iterations=inner_iterations,
        nfev=counts.nfev,
        njev=counts.njev,
        nhev=counts.nhev,
        passes=counts.passes,
        seconds=evaluator.budget.seconds,
        reductions=counts.reductions,
        reduced_bytes=counts.reduced_bytes,
        validation=nan,
        kind=kind,
    )
