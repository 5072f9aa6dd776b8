"""One run: how it is set up, start, step, stop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.optimize import Bounds, OptimizeResult

from ksdmin._options import MethodOptions
from ksdmin._problem.arrays import Array, Space, rounded_like, to_host
from ksdmin._problem.box import Box, as_box, started
from ksdmin._problem.described import counted
from ksdmin._problem.functions import FunctionProblem
from ksdmin._problem.hosted import problem_of_run, space_of_run
from ksdmin._problem.protocol import Problem
from ksdmin._problem.subsets import PLAIN, Plain, Subsets, as_subsets
from ksdmin._problem.team import ALONE, Team, team_of
from ksdmin._problem.user_values import as_vector
from ksdmin._problem.values import changed
from ksdmin._result import TESTS, Origin, Result, Status
from ksdmin._run.evaluator import LEDGER, Agreement, Budget, Halt, Ledger
from ksdmin._run.frames import frames_to_the_user
from ksdmin._run.run import Run
from ksdmin._run.state import State
from ksdmin._run.stop import verdict
from ksdmin._solver.ending import cut_short, finish, print_summary
from ksdmin._solver.interrupts import OnCtrlC
from ksdmin._solver.methods import METHODS
from ksdmin._solver.observer import Observer
from ksdmin._solver.saved import Keeper, Saved, saved


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
    sampled = not isinstance(subsets, Plain)
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
        sampled=sampled,
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


T = TypeVar("T")
log = logging.getLogger("ksdmin")


def begin(
    problem: Problem,
    x0: Any,
    callback: Callable[..., Any] | None,
    options: MethodOptions,
    rng: Any,
    subsets: Any,
    bounds: Any,
    method: str,
) -> Loop:
    """The run of `problem` from `x0`; nothing is evaluated yet."""
    team = team_of(problem)
    x0 = team.from_first(start_point(problem, x0))
    space = space_of_run(x0)
    x0 = space.taken(x0)
    box = as_box(bounds, x0)
    x0 = started(box, x0, frames=frames_to_the_user())
    if box is not None and isinstance(problem, FunctionProblem):
        problem = problem.within(box)
    sets = resolve_subsets(problem, subsets)
    ledger = Ledger(problem_of_run(problem, space))
    if team is not ALONE:
        team.require_same(compared(options, method, sets))
    plain = make_run(space, sets, options, rng, box, team)
    run = METHODS[method].prepare(plain, options, ledger.problem.traits)
    keeper = team.together(lambda: Keeper.new(run, method, problem))
    ledger = watched(ledger, run)
    loop = Loop(keeper, run, ledger, space.copy(x0), Observer(callback, options, space))
    loop.source = Source(problem, subsets, keep=isinstance(problem, FunctionProblem))
    return loop


def watched(ledger: Ledger, run: Run) -> Ledger:
    """The ledger of a run, whose problem knows when the run is to end.

    A gradient that is made of many values may be given up halfway; several processes have to agree.
    """
    problem = ledger.problem
    if isinstance(problem, FunctionProblem):
        return changed(ledger, problem=problem.watched(run.budget.check))
    return changed(ledger, problem=problem.in_step_with(run.budget))


class Source(NamedTuple):
    """What a run is of.

    Attributes
    ----------
    problem : Problem
        The user's own, or what was made of the user's functions.
    subsets : object
        What was given beside it.
    keep : bool
        Whether a result keeps it alive: functions, but not an object of the user's with data.
    """

    problem: Any
    subsets: Any
    keep: bool


class Loop:
    """A run, and where it stands.

    Attributes
    ----------
    keeper : Keeper
        Saves it.
    run : Run
        What stays the same.
    observer : Observer
        Who watches it.
    state : State or None
        After the last finished iteration; None: x0 has not been evaluated yet.
    status : Status or None
        Why it has ended; None: it goes on.
    source : Source or None
        What its results are of.
    """

    source: Source | None = None

    def __init__(
        self,
        keeper: Keeper,
        run: Run,
        ledger: Ledger,
        x0: Array,
        observer: Observer,
        state: State | None = None,
    ) -> None:
        self.keeper, self.run, self.observer = keeper, run, observer
        self.method = METHODS[keeper.identity.method]
        self.state = state
        self.status: Status | None = None
        self._to_save = state  # without what a look at the end has cost: it will be looked again
        self._x0, self._ledger = x0, ledger
        self._cut: tuple[Status, Ledger] | None = None  # by an exception
        self._halted: Ledger | None = None  # what a step had spent and found that was given up
        self._seen = False  # whether the observer has seen `state`, in all processes

    def __setstate__(self, content: dict[str, Any]) -> None:
        """A copy: the watch over the clock is not copied with a problem."""
        self.__dict__.update(content)
        self._ledger = watched(self._ledger, self.run)
        if self.state is not None:
            self.state = changed(self.state, ledger=watched(self.state.ledger, self.run))

    def to_the_end(self, *, catch_interrupt: bool = True) -> OptimizeResult:
        """The result of all iterations.

        An exception in user code passes unchanged, with the result so far as its attribute
        ``ksdmin_result``; so does Ctrl-C where `catch_interrupt` is False.
        """
        ctrl_c = OnCtrlC(self.run.budget.interrupt) if catch_interrupt else nullcontext()
        with self.observer, ctrl_c:
            try:
                while self.advance():
                    pass
                result = self.result()
            except KeyboardInterrupt:
                if not catch_interrupt:
                    raise
                result = self.result()
        log.info("%s (status %d): value %.8g", result.message, result.status, result.fun)
        if self.run.options.disp:
            print_summary(result)
        return result

    def advance(self) -> bool:
        """Go on by one iteration; False: there is none, as the run has ended."""
        if self.status is not None:
            return False
        try:
            return self._guarded(self._advance)
        except Halt as halt:
            self.status, self._halted = halt.status, vars(halt).pop(LEDGER, None)
            if self.state is not None:
                self.keeper.after_iteration(self.saved, ended=True)
            return False

    def _advance(self) -> bool:
        state = before = self._start() if self.state is None else self.state
        if self.status is None and not self._seen:
            self.status = self._see(state)
        while self.status is None and state.record is before.record:
            self.state, self.status = state, _ = self._turn(state)
            self._seen = False
            if self.status is None:
                self.status = self._see(state)
        self.keeper.after_iteration(self.saved, ended=self.status is not None)
        return state.record is not before.record

    def described(self) -> str:
        """Where the run stands, in a line."""
        method = self.keeper.identity.method
        if self.state is None:
            return f"{method}, {counted(self.run.space.n, 'unknown')}, not begun"
        record = self.state.record
        where = f"{record.value:.6g}, max |gradient| {record.gradient_norm:.1e}"
        word = "running" if self.status is None else self.status.name
        return f"{method}, {counted(record.iteration, 'iteration')}, value {where}, {word}"

    def saved(self) -> Saved:
        """The run as it is saved."""
        if self.state is None:
            self._guarded(self._start)
        return saved(self.run, self._to_save, self.observer)

    def result(self) -> OptimizeResult:
        """The result by now; what is not known of it is computed, but not as part of the run."""
        result = self._result()
        if self.source is not None:
            box, (problem, subsets, keep) = self.run.box, self.source
            bounds = None if box is None else Bounds(to_host(box.lower), to_host(box.upper))
            result.come_from(Origin(problem, int(result.x.shape[0]), bounds, subsets), keep=keep)
        return result

    def _result(self) -> Result:
        if self._cut is None:
            try:
                return self._guarded(self._finished)
            except Halt as halt:  # there is no time for the gradient at the best point
                status = self.status or halt.status
                self._cut = status, vars(halt).pop(LEDGER, self._halted or self._ledger)
        status, ledger = self._cut
        return cut_short(self.run, self.state, ledger, self.observer, status, self._x0)

    def _finished(self) -> Result:
        state = self._start() if self.state is None else self.state
        if self._halted is not None:
            state = changed(state, ledger=self._halted)
        status = Status.RUNNING if self.status is None else self.status
        result = finish(self.run, state, self.observer, status)
        result.update(self.method.extras(self.run, state))
        return result

    def _start(self) -> State:
        self.state = self.method.start(self.run, self._ledger, self._x0)
        self._see(self.state)
        self.run.team.together(lambda: self.keeper.at_start(self.saved))
        return self.state

    def _see(self, state: State) -> Status | None:
        """What those say who watch the run, in any of its processes."""
        self._to_save, record = state, state.record
        marks = record.value, record.gradient_norm, record.step_norm
        status = self.run.team.agreed(partial(self.observer.see, state), marks)
        self._seen = True
        return None if status is None else Status(status)

    def _turn(self, state: State) -> tuple[State, Status | None]:
        """The next state; or why there is none, and the state that this look has led to."""
        status = verdict(self.run, state)
        if status is None:
            after = self.method.step(self.run, state)
            refined = after.ledger.refined > state.ledger.refined
            return self._moved(after) if refined else after, None
        if status in TESTS:
            with suppress(Halt):  # the test holds, whether there is time to look for more or not
                state, escaped = self.method.escape(self.run, state)
                status = None if escaped else status
        return state, status

    def _moved(self, state: State) -> State:
        """The state in finer arithmetic; the run goes with it where that is of another dtype."""
        run, state = self.method.move(self.run, state)
        if run is not self.run:
            log.info("iteration %d: the run goes on in %s", state.record.iteration, run.space.dtype)
            self.observer.move(run.space)
            self.keeper.run = self.run = run
        return state

    def _guarded(self, act: Callable[[], T]) -> T:
        """What `act` returns; user code may fail in it."""
        self._cut = None
        try:
            return act()
        except BaseException as error:
            self._cut_short(error)
            raise

    def _cut_short(self, error: BaseException) -> None:
        """An exception of user code: it takes along the result so far."""
        if isinstance(error, Halt):
            return
        interrupted = isinstance(error, KeyboardInterrupt)
        ledger = vars(error).pop(LEDGER, self.state.ledger if self.state else self._ledger)
        self._cut = Status.INTERRUPTED if interrupted else Status.FAILED, ledger
        if self.state is not None:
            self.keeper.before_exception(self.saved)
        with suppress(Exception):  # an exception may refuse attributes
            error.ksdmin_result = self.result()  # type: ignore[attr-defined]
