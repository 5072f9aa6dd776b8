"""One run: set-up, start, step, stop. Everything that minimises drives this loop."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from scipy.optimize import Bounds, OptimizeResult

from ksdmin._options import MethodOptions
from ksdmin._problem.arrays import Array, Space, to_host
from ksdmin._problem.box import Box, as_box, started
from ksdmin._problem.counting import CountingProblem
from ksdmin._problem.entry import resolve_subsets, start_point
from ksdmin._problem.functions import FunctionProblem
from ksdmin._problem.hosted import problem_of_run, space_of_run
from ksdmin._problem.protocol import Problem
from ksdmin._problem.subsets import Plain, Subsets
from ksdmin._problem.team import ALONE, Team, team_of
from ksdmin._problem.user_values import as_generator, counted, frames_to_the_user
from ksdmin._problem.values import changed
from ksdmin._result import TESTS, Origin, Result, Status
from ksdmin._run import checkpoint
from ksdmin._run.checkpoint import Keeper
from ksdmin._run.ending import cut_short, finish, print_summary, verdict
from ksdmin._run.evaluator import LEDGER, Budget, Evaluated, Halt, Interrupt, Ledger
from ksdmin._run.observer import Observer
from ksdmin._run.run import Run, State

log = logging.getLogger("ksdmin")


class Method(NamedTuple):
    """What a method brings to a run."""

    name: str  # as the argument `method` has it
    # The classes of its options and of its states.
    options: type[MethodOptions]
    state: type[State]
    prepare: Callable[..., Any]  # (run, options, traits) -> the run with what the method adds to it
    # (run, ledger, x0) -> state, and (run, state) -> state.
    start: Callable[..., Any]
    step: Callable[..., Any]
    # (run, state) -> (state, whether it lies further down): where the gradient has vanished.
    escape: Callable[..., tuple[Any, bool]] | None = None
    # (run, state) -> (run, state), in the dtype of the problem, which may be another one by now.
    move: Callable[..., tuple[Any, Any]] | None = None
    # (run, state) -> fields of the result that only this method has.
    extras: Callable[..., dict[str, Any]] | None = None


class Source(NamedTuple):
    """What a run is of."""

    problem: Any  # the user's own, or what was made of the user's functions
    subsets: Any  # what was given beside it
    # Whether a result keeps it alive: functions, but not an object of the user's with data.
    keep: bool


def begin(
    method: Method,
    problem: Problem,
    x0: Any,
    options: MethodOptions,
    *,
    callback: Callable[..., Any] | None,
    rng: Any,
    subsets: Any,
    bounds: Any,
    keep: bool,
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
    taken = problem_of_run(problem, space)
    if team is not ALONE:
        own = ("validation", "disp", "progress", "checkpoint", "checkpoint_every")
        names = [field.name for field in fields(options) if field.name not in own]
        decisive = {f"option {name}": getattr(options, name) for name in names}
        same = {"method": method.name, "the number of samples": sets.n, **decisive}
        team.require_same(same)  # by names that the user knows
    plain = make_run(space, sets, options, rng, box, team)
    run = method.prepare(plain, options, taken.traits)
    path = Path(options.checkpoint) if options.checkpoint is not None and team.is_first else None
    team.together(lambda: None if path is None else checkpoint.refuse_path(path))
    source, observer = Source(problem, subsets, keep), Observer(callback, options, space)
    return Loop(method, run, Ledger(taken), space.copy(x0), observer, source)


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
    seed = as_generator(rng).integers(0, 2**32, size=4) if sampled else ()
    return Run(
        space=space,
        subsets=subsets,
        options=options,
        budget=Budget(options.maxfun, options.maxtime, agrees=team is not ALONE),
        seed=team.from_first(tuple(int(word) for word in seed)),
        maxiter=maxiter,
        box=box,
        team=team,
        sampled=sampled,
    )


class Loop:
    """A run, and where it stands."""

    def __init__(
        self,
        method: Method,
        run: Run,
        ledger: Ledger,  # what has been spent and found, and the problem
        x0: Array,
        observer: Observer,
        source: Source | None = None,  # what its results are of
        state: State | None = None,  # that of a run that goes on
        # By which the files of a run that goes on are known.
        identity: Mapping[str, str] | None = None,
    ) -> None:
        self.method, self.run, self.observer, self.source = method, run, observer, source
        self._identity = identity  # for a new run, from its first file on
        self.status: Status | None = None  # why it has ended; None: it goes on
        self._x0, self._ledger = x0, watched(ledger, run)
        # After the last finished iteration; None: x0 has not been evaluated yet.
        self.state = None if state is None else changed(state, ledger=self._ledger)
        self._to_save = self.state  # without the cost of a look at the end, which is repeated
        self._cut: tuple[Status, Ledger] | None = None  # ended by an exception
        self._halted: Ledger | None = None  # what an abandoned step had spent and found
        self._seen = False  # whether the observer has seen `state`, in all processes
        self._keeper: Keeper | None = None
        path, every = run.options.checkpoint, run.options.checkpoint_every
        if path is not None and run.team.is_first:
            self._keeper = Keeper(Path(path), every, self._write, begun=state is not None)

    def __setstate__(self, content: dict[str, Any]) -> None:
        """Restore a copy, whose problem has to watch the clock again."""
        self.__dict__.update(content)
        self._ledger = watched(self._ledger, self.run)
        if self.state is not None:
            self.state = changed(self.state, ledger=watched(self.state.ledger, self.run))

    def ended(self) -> bool:
        """Whether the run has ended; the status says why."""
        return self.status is not None

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
        """Make one iteration; False: there was none, because the run has ended."""
        if self.status is not None:
            return False
        self._cut = None
        try:
            state = self.state or self._begun()
            before = state.record
            goes_on = self._seen or self._see(state)
            while goes_on and state.record is before:
                state = self.look()
                goes_on = not self.ended()
                if goes_on and state.record is before:
                    after = self.method.step(self.run, state)
                    refined = after.ledger.refined > state.ledger.refined
                    self.state = state = self._moved(after) if refined else after
                    self._seen = False
                goes_on = goes_on and self._see(state)
            if self._keeper is not None:
                self._keeper.after_iteration(ended=not goes_on)
            return state.record is not before
        except Halt as halt:
            self.status, self._halted = halt.status, vars(halt).pop(LEDGER, None)
            if self._keeper is not None and self.state is not None:
                self._keeper.after_iteration(ended=True)
            return False
        except BaseException as error:
            self._cut_short(error)
            raise

    def look(self) -> State:
        """Whether an iteration can follow; if not, the status says why.

        If the gradient has vanished, a step down from a saddle point may be the next iteration.
        """
        state = self.state or self._begun()
        self.status, escape = verdict(self.run, state), self.method.escape
        if self.status in TESTS and escape is not None:
            with suppress(Halt):  # the test holds, even if there is no time for more
                state, escaped = escape(self.run, state)
                self.status = None if escaped else self.status
        self._seen = self._seen and state is self.state
        self.state = state
        return state

    def replace_problem(self, problem: CountingProblem, here: Evaluated, *, same: bool) -> None:
        """Go on with another problem, which has been evaluated `here`.

        If it is the `same` function up to rounding, a run that has ended may stay ended. The clock
        continues from where the last iteration left it.
        """
        assert self.state is not None
        record = self.state.record
        self.run = run = changed(self.run, budget=self.run.budget.after(record.seconds))
        norm = run.stationarity(here.x, here.gradient)
        ledger = watched(changed(self.state.ledger, problem=problem, best=None), run)
        record = replace(record, value=here.value, gradient_norm=norm)
        state = changed(self.state, here=here, gradient_norm=norm, record=record, ledger=ledger)
        self.state, self._seen = state if same else state.of_another_function(), True
        self.status = verdict(run, self.state) if same and self.ended() else None

    def leave_problem(self) -> None:
        """Forget the problem, so that a run that waits for another one does not keep it alive."""
        assert self.state is not None
        nothing: Any = None
        self._ledger = changed(self.state.ledger, problem=nothing, best=None)
        self.state = self._to_save = changed(self.state, ledger=self._ledger)
        self._x0, self._cut, self._halted = self.state.here.x, None, None

    def described(self) -> str:
        """The state of the run in one line."""
        if self.state is None:
            return f"{self.method.name}, {counted(self.run.space.n, 'unknown')}, not begun"
        record = self.state.record
        where = f"{record.value:.6g}, max |gradient| {record.gradient_norm:.1e}"
        word = "running" if self.status is None else self.status.name
        return (
            f"{self.method.name}, {counted(record.iteration, 'iteration')}, value {where}, {word}"
        )

    def save(self, path: Path) -> None:
        """Write the run to a file; of several processes, the first does."""
        if self.state is None:  # x0 is evaluated by all of them
            self._cut = None
            try:
                self._begun()
            except BaseException as error:
                self._cut_short(error)
                raise
        self.run.team.together(lambda: self._write(path) if self.run.team.is_first else None)

    def _write(self, path: Path) -> None:
        if self._identity is None:
            kind = type(None if self.source is None else self.source.problem).__name__
            own = {"method": self.method.name, "problem": kind}
            self._identity = {"run": os.urandom(16).hex(), **own}
        assert self._to_save is not None
        checkpoint.write(path, self._identity, self.run, self._to_save, self.observer)

    def result(self) -> OptimizeResult:
        """The result so far; what is missing is computed, but not as part of the run."""
        result = self._result()
        if self.source is not None:
            box, (problem, subsets, keep) = self.run.box, self.source
            bounds = None if box is None else Bounds(to_host(box.lower), to_host(box.upper))
            result.come_from(Origin(problem, int(result.x.shape[0]), bounds, subsets), keep=keep)
        return result

    def _result(self) -> Result:
        if self._cut is None:
            try:
                state, extras = self._begun(), self.method.extras
                if self._halted is not None:
                    state = changed(state, ledger=self._halted)
                status = Status.RUNNING if self.status is None else self.status
                result = finish(self.run, state, self.observer, status)
                if extras is not None:
                    result.update(extras(self.run, state))
                return result
            except Halt as halt:  # there is no time for the gradient at the best point
                status = self.status or halt.status
                self._cut = status, vars(halt).pop(LEDGER, self._halted or self._ledger)
            except BaseException as error:
                self._cut_short(error)
                raise
        status, ledger = self._cut
        return cut_short(self.run, self.state, ledger, self.observer, status, self._x0)

    def _begun(self) -> State:
        """The state; at first the one at x0."""
        if self.state is None:
            self.state = self.method.start(self.run, self._ledger, self._x0)
            self._see(self.state)
            self.run.team.together(self._keeper.at_start if self._keeper else lambda: None)
        return self.state

    def _see(self, state: State) -> bool:
        """Show a state to the observers; returns whether the run goes on.

        They may end it, in any of its processes.
        """
        self._to_save, record = state, state.record
        marks = record.value, record.gradient_norm, record.step_norm
        status = self.run.team.agreed(partial(self.observer.see, state), marks)
        self._seen = True
        if status is None:
            return True
        self.status = Status(status)
        return False

    def _moved(self, state: State) -> State:
        """The state in finer arithmetic, and the run with it, if that has another dtype."""
        if self.method.move is None:
            return state
        run, state = self.method.move(self.run, state)
        if run is not self.run:
            log.info("iteration %d: the run goes on in %s", state.record.iteration, run.space.dtype)
            self.observer.move(run.space)
            self.run = run
        return state

    def _cut_short(self, error: BaseException) -> None:
        """Attach the result so far to an exception of user code."""
        interrupted = isinstance(error, KeyboardInterrupt)
        ledger = vars(error).pop(LEDGER, self.state.ledger if self.state else self._ledger)
        self._cut = Status.INTERRUPTED if interrupted else Status.FAILED, ledger
        if self._keeper is not None and self.state is not None:
            self._keeper.before_exception()
        with suppress(Exception):  # an exception may refuse attributes
            error.ksdmin_result = self.result()  # type: ignore[attr-defined]


def watched(ledger: Ledger, run: Run) -> Ledger:
    """The ledger of a run, whose problem knows when the run should end.

    A gradient made of many values may be given up halfway; several processes have to agree.
    """
    problem = ledger.problem
    if isinstance(problem, FunctionProblem):
        return changed(ledger, problem=problem.watched(run.budget.check))
    return changed(ledger, problem=problem.in_step_with(run.budget))


# Ctrl-C once: the run ends after the evaluation; twice: it ends at once


active: list[Interrupt] = []  # of the runs that Ctrl-C asks to end, one within the other


class OnCtrlC:
    """A context in which Ctrl-C asks a run to end.

    It replaces only Python's own handler, and only in the main thread; a user's handler stays. A
    run within a run is asked together with the outer one.
    """

    def __init__(self, interrupt: Interrupt) -> None:
        self._interrupt, self._handles = interrupt, False

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        current = signal.signal(signal.SIGINT, ask)  # checking first would cost as much again
        self._handles = current in (signal.default_int_handler, ask)
        if self._handles:
            active.append(self._interrupt)
        else:
            signal.signal(signal.SIGINT, current)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not self._handles:
            return
        active.remove(self._interrupt)
        if not active:
            current = signal.signal(signal.SIGINT, signal.default_int_handler)
            if current is not ask:  # a callback has set another one
                signal.signal(signal.SIGINT, current)


def ask(number: int, frame: FrameType | None) -> Any:
    """Ask all active runs to end; if all of them were asked already, end at once."""
    if all(run.asked for run in active):
        return signal.default_int_handler(number, frame)
    for run in active:
        run.asked = True
    log.warning("Ctrl-C: the run ends after this evaluation; Ctrl-C again ends it at once")
    return None
