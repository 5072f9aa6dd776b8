"""How a run is set up: where it starts, what it samples, what stays the same during it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from ksdmin._options import MethodOptions
from ksdmin._problem.arrays import Array, Space, rounded_like
from ksdmin._problem.box import Box
from ksdmin._problem.functions import FunctionProblem
from ksdmin._problem.protocol import Problem
from ksdmin._problem.subsets import PLAIN, Subsets, as_subsets
from ksdmin._problem.team import ALONE, Team
from ksdmin._problem.user_values import as_vector
from ksdmin._run.evaluator import Agreement, Budget
from ksdmin._run.run import Run


def start_point(problem: Problem, x0: Any) -> Array:
    """Where to start: `x0`, or the problem's own."""
    own = getattr(problem, "x0", None)
    if x0 is None and own is None:
        raise TypeError("x0 is missing, and the problem does not bring its own")
    return as_vector(own) if x0 is None else rounded_like(own, as_vector(x0))


def resolve_subsets(problem: Problem, subsets: Any) -> Subsets:
    """The sets to sample: the caller's, the problem's own, or everything at once."""
    own = getattr(problem, "subsets", None)
    if isinstance(problem, FunctionProblem) and own is None and subsets is not None:
        raise ValueError(
            "subsets= beside a problem whose functions take no idx: give subsets to as_problem"
        )
    if subsets is None:
        return PLAIN if own is None else as_subsets(own)
    sets = as_subsets(subsets)
    if own is None:
        return sets
    n = as_subsets(own).n
    if n is not None and sets.n is not None and sets.n != n:
        raise ValueError(
            f"subsets: {sets.n} samples, but the problem has {n}: leave subsets out, or pass "
            f"ksdmin.Subsets({n}, ...)"
        )
    return as_subsets(own).adopting(sets)


def make_run(
    space: Space,
    subsets: Subsets,
    options: MethodOptions,
    rng: Any,
    box: Box | None = None,
    team: Team = ALONE,
) -> Run:
    """What stays the same during a run of any method."""
    sampled = subsets is not PLAIN
    maxiter = options.maxiter
    if maxiter is None:
        maxiter = 1000 if sampled else 200 * space.n
    seed = np.random.default_rng(rng).integers(0, 2**32, size=4) if sampled else ()
    agreement = None if team is ALONE else Agreement()
    return Run(
        space=space,
        subsets=subsets,
        options=options,
        budget=Budget(options.maxfun, options.maxtime, agreement=agreement),
        seed=team.from_first(tuple(int(word) for word in seed)),
        maxiter=maxiter,
        box=box,
        team=team,
    )


def compared(options: MethodOptions, method: str, subsets: Subsets) -> dict[str, Any]:
    """What has to be the same in all processes of a run, by names that the user knows."""
    own = ("validation", "disp", "progress", "checkpoint", "checkpoint_every")
    decisive = {
        f"option {field.name}": getattr(options, field.name)
        for field in fields(options)
        if field.name not in own
    }
    return {"method": method, "the number of samples": subsets.n, **decisive}
