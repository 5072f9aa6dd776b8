"""How a saved run continues."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ksdmin._libraries import file_of
from ksdmin._options import MethodOptions, hint
from ksdmin._problem.arrays import Array, Space
from ksdmin._problem.box import Box
from ksdmin._problem.counting import Counts, Remembered
from ksdmin._problem.entry import resolve_subsets
from ksdmin._problem.functions import FunctionProblem
from ksdmin._problem.hosted import problem_of_run, space_of_run
from ksdmin._problem.protocol import Problem
from ksdmin._problem.subsets import Subsets, one_object
from ksdmin._problem.team import Team, team_of
from ksdmin._problem.user_values import as_vector
from ksdmin._problem.values import changed
from ksdmin._result import Record
from ksdmin._run import checkpoint_file
from ksdmin._run.checkpoint import Saved, dtype_name
from ksdmin._run.checkpoint_file import CheckpointError, SavedArray, decode
from ksdmin._run.loop import Loop, Method, Source, make_run
from ksdmin._run.observer import Observer
from ksdmin._run.run import Run, State

# Options that may change in the next part of a run: they decide when it ends and what watches it.
MAY_CHANGE = (
    *("maxiter", "maxfun", "maxtime", "gtol", "gtol_rel", "ftol", "xtol", "disp"),
    *("progress", "fmin", "validation", "patience", "history", "checkpoint", "checkpoint_every"),
)

SAME_VALUE = 0.5  # values may differ by this power of eps, because other machines round differently


def loaded(
    methods: Mapping[str, Method],
    path: Path,
    problem: Any,
    callback: Callable[..., Any] | None,
    options: Mapping[str, Any] | None,
    subsets: Any,
    like: Any,
) -> Loop:
    """The run of a file, completed by what the user gives again."""
    if not isinstance(problem, Problem):
        raise TypeError(
            f"problem: expected a problem object, not a {type(problem).__name__}. Make one of the "
            "functions that the run was started with: ksdmin.as_problem(fun, jac=..., ...)"
        )
    header, content = team_of(problem).together(lambda: checkpoint_file.read(path))
    space = space_of_run(vector_like_saved(header, problem, like))
    sets = resolve_subsets(problem, subsets)
    check_header(path, header, problem, space, sets)
    again = partial(array_again, space, header["hosted"])
    nothing_random = np.random.default_rng(0)
    given = {
        "problem": None,  # which can be made when the rest is known
        "rest": None,
        "full": sets.full,
        # how to draw the set of an iteration again, if it could not be saved
        "drawn": lambda iteration: sets.draw(iteration, nothing_random, None).A,
    }
    method = methods[header["method"]]
    saved = decode(Saved, content, given, again, also=method.state)
    state = state_again(saved, problem, space, sets)
    space = state.ledger.problem.home(space)
    if dtype_name(space) != header["dtype"]:
        raise CheckpointError(
            f"{path}: the saved run is in {header['dtype']}, the problem in {dtype_name(space)}: "
            "a run cannot go on in another dtype. Convert the problem, or start again from x"
        )
    records = [Record(*row) for row in saved.records]
    check_value(path, state, records[0].value, space.eps**SAME_VALUE)
    state = recalled(state, saved.remembered, sets.full)
    run, state = goes_on(method, saved, state, options or {}, space, sets, team_of(problem))
    observer = Observer(callback, run.options, space)
    observer.take_up(records, state.record, saved.watched)
    identity = {name: header[name] for name in ("run", "method", "problem")}
    source = Source(problem, subsets, keep=isinstance(problem, FunctionProblem))
    return Loop(method, run, state.ledger, state.here.x, observer, source, state, identity)


def state_again(saved: Saved, problem: Any, space: Space, sets: Subsets) -> State:
    """The saved state, with its sets, and the problem in its last arithmetic."""
    if saved.bounds is not None and isinstance(problem, FunctionProblem):
        problem = problem.within(Box(space, *saved.bounds))
    taken, state = problem_of_run(problem, space), saved.state
    for _ in range(state.ledger.refined):
        taken = taken.in_finer_arithmetic() or taken
    rest = sets.stream() if saved.sets_taken else None
    for _ in range(saved.sets_taken):  # the user's iterable, up to where it stood
        if rest is None:
            raise CheckpointError("subsets: the saved run took its sets from an iterable")
        _, rest = rest.take()
    sampling = changed(state.sampling, rest=rest)
    state = changed(state, ledger=changed(state.ledger, problem=taken), sampling=sampling)
    return state.from_file(sets.full)


def recalled(state: State, known: Remembered | None, full: Any) -> State:
    """The state, whose problem remembers its last point."""
    if known is None:
        return state
    sets, ledger = state.sampling.sets, state.ledger
    idx = one_object(known.idx, (full, state.here.idx, sets.A, sets.B, sets.C))
    problem = ledger.problem.recalling(changed(known, idx=idx))
    return changed(state, ledger=changed(ledger, problem=problem))


def goes_on(
    method: Method,
    saved: Saved,
    state: State,
    options: Mapping[str, Any],
    space: Space,
    sets: Subsets,
    team: Team,
) -> tuple[Run, State]:
    """The run with the changed options, and its state."""
    if saved.validates and options.get("validation") is None:
        raise ValueError(
            "options: the saved run has a validation function, which a file cannot hold: pass "
            "options={'validation': ...}"
        )
    kept = {"patience": saved.patience} if saved.validates else {}
    chosen = options_again(saved.options, {**kept, **options})
    given = {name for name in ("gtol", "ftol", "xtol") if name in options}
    state = state.with_tolerances({name: getattr(chosen, name) for name in given})
    if chosen.gtol_rel and math.isnan(state.first_norm) and sets.full is not None:
        raise ValueError(
            "options: gtol_rel is relative to the gradient of all samples at x0, which the saved "
            "run has not computed, as it began with a part of them: pass gtol instead"
        )
    box = None if saved.bounds is None else Box(space, *saved.bounds)
    plain = make_run(space, sets, chosen, None, box, team)
    run: Run = method.prepare(plain, chosen, state.ledger.problem.traits)
    return changed(run, seed=saved.seed, budget=run.budget.after(saved.seconds)), state


def array_again(space: Space, was_hosted: bool, saved: SavedArray) -> Array:
    """An array of the file, in the library and on the device of the run.

    `was_hosted`: whether vectors in the file were kept as numpy for another library.
    """
    content = saved.content
    real = content.dtype.kind == "f"
    if was_hosted and not saved.was_numpy and space.hosted:
        return space.given(content) if real else space.indices(content)
    if saved.was_numpy and not (was_hosted and real and not space.hosted):
        return content
    if space.numpy and (real or not space.hosted):
        return content
    if not real and content.dtype == np.int64:
        return space.indices(content)
    out = space.xp.asarray(content, device=space.device)
    return space.taken(out) if real else out


def vector_like_saved(header: Mapping[str, Any], problem: Any, like: Any) -> Array:
    """A vector with the library, dtype and device in which the run continues."""
    x = getattr(problem, "x0", None) if like is None else like
    if x is not None:
        return as_vector(x)
    n, dtype, library = header["n"], header["dtype"], header["library"]
    if library == "numpy":
        return np.zeros(n, dtype=dtype)
    native = file_of(library)
    if native is None:
        raise CheckpointError(
            f"the saved run has arrays of {library}: pass like=, a vector of that library"
        )
    return native.zeros(n, dtype, header["device"])


def check_header(
    path: Path, header: Mapping[str, Any], problem: Any, space: Space, sets: Subsets
) -> None:
    """Raise if the file cannot belong to the problem."""
    kind, saved = type(problem).__name__, header["problem"]
    n, samples = header["n"], header["samples"]
    for same, differ in (
        (saved == kind, f"run was saved with a {saved}, not with a {kind}: pass the same problem"),
        (space.n == n, f"saved run has {n} unknowns, the problem has {space.n}"),
        (
            sets.n == samples,
            f"saved run has {samples} samples, the problem has {sets.n} (None stands for sets of "
            "your own): pass the same data, or the same subsets=",
        ),
    ):
        if not same:
            raise CheckpointError(f"{path}: the {differ}")


def check_value(path: Path, state: State, first: float, error: float) -> None:
    """Raise if the value at the saved point differs; this evaluation is not counted."""
    here = state.here
    value = state.ledger.problem.counting(Counts()).value(here.x, here.idx)
    scale = max(abs(here.value), abs(first) if math.isfinite(first) else 0.0)
    error = max(error, 10 * (state.ledger.problem.traits.noise or 0.0))
    if math.isfinite(here.value) and not abs(value - here.value) <= error * scale:
        raise CheckpointError(
            f"{path}: at the saved point the problem has the value {value:.10g}, the saved run had "
            f"{here.value:.10g}: have the data or the function changed?"
        )


def options_again(saved: MethodOptions, given: Mapping[str, Any]) -> Any:
    """The options of the run with the user's changes."""
    names = [field.name for field in fields(saved)]
    for name in given:
        if name not in names:
            raise ValueError(f"options: unknown {name!r}{hint(name, names)}")
        if name not in MAY_CHANGE and given[name] != getattr(saved, name):
            raise ValueError(
                f"option {name}: a saved run continues as it began, with "
                f"{name}={getattr(saved, name)!r}; what may be changed: {', '.join(MAY_CHANGE)}"
            )
    return replace(saved, **given)
