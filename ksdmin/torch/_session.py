"""The iterations of one step of the optimizer: a run that goes on with a fresh closure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ksdmin._adapters.torch.closure import Closure, ClosureProblem
from ksdmin._ksd.start import prepare, start
from ksdmin._ksd.state import KSDRun, KSDState
from ksdmin._ksd.step import step
from ksdmin._ksd.steps.escape import escape
from ksdmin._options import Options
from ksdmin._problem.arrays import Space
from ksdmin._problem.protocol import VALUE_ROUNDINGS
from ksdmin._problem.subsets import PLAIN
from ksdmin._problem.values import changed
from ksdmin._result import TESTS, Status
from ksdmin._run.encode import decode, encode
from ksdmin._run.evaluator import Evaluated, Ledger
from ksdmin._run.stop import verdict
from ksdmin._solver import make_run


@dataclass(frozen=True)
class Kept:
    """What a step leaves to the next one in this process, beside what is saved.

    Attributes
    ----------
    run : KSDRun
        Its space, and what is recorded on the device for it: a graph is worth many steps.
    state : KSDState
        After the last iteration, without the closure.
    saved : object
        How this state was saved.
    """

    run: KSDRun
    state: KSDState
    saved: Any


class Session:
    """A run that is taken up again, for some iterations.

    Parameters
    ----------
    closure : Closure
        The objective of these iterations; called at `x` already.
    x : Tensor
        Where the parameters are.
    options : Options
        The user's.
    saved : mapping or None
        What `leave` gave in the last step.
    kept : Kept or None
        What that has left in this process.

    Attributes
    ----------
    state : KSDState
        After the last iteration that was finished.
    status : Status or None
        Why no iteration can follow; None: one can.
    """

    state: KSDState
    status: Status | None

    def __init__(
        self,
        closure: Closure,
        x: Tensor,
        options: Options,
        saved: Mapping[str, Any] | None,
        kept: Kept | None = None,
    ) -> None:
        if kept is not None and not kept.run.space.holds(x):  # the model has moved since
            kept = None
        space = Space(x) if kept is None else kept.run.space
        problem = ClosureProblem(closure, space)
        run = prepare(make_run(space, PLAIN, options, None), options, problem.traits)
        if kept is not None:
            run = changed(run, workspace=kept.run.workspace, recorded=kept.run.recorded)
        self._run, self.status = changed(run, maxiter=math.inf), None
        old = None
        if saved is not None and kept is not None and saved["state"] is kept.saved:
            old = changed(kept.state, ledger=changed(kept.state.ledger, problem=problem))
        elif saved is not None:
            old = decode(KSDState, saved["state"], {"problem": problem}, lambda u: u.to(x))
        if saved is None or old is None or never_finite(old):
            self.state = start(self._run, Ledger(problem), x)
        else:
            here = Evaluated(x, old.here.idx, *closure.value_and_gradient(x))
            self._take_up(old, here, ended=saved["status"] is not None)

    def _take_up(self, old: KSDState, here: Evaluated, *, ended: bool) -> None:
        """Go on from the last step's state, which may be the end of a run."""
        seconds = old.record.seconds  # records count those in steps
        self._run = changed(self._run, budget=self._run.budget.after(seconds))
        same = is_same_function(self._run.space, old.here, here)
        self.state = taken_up(self._run, old, here, same=same)
        if ended and same:
            self.status = verdict(self._run, self.state)

    def advance(self, iterations: int) -> None:
        """Make so many iterations, or fewer where the run is at its end."""
        last = self.state.record.iteration + iterations
        while self.status is None:
            status, escaped = verdict(self._run, self.state), False
            if status in TESTS:
                self.state, escaped = escape(self._run, self.state)
            if status is not None and not escaped:
                self.status = status
            elif self.state.record.iteration >= last:
                return
            elif not escaped:
                self.state = step(self._run, self.state)

    def leave(self) -> tuple[dict[str, Any], Kept]:
        """What the next session needs, as plain values and tensors; and what stays here."""
        ledger = self.state.ledger
        state = changed(self.state, ledger=changed(ledger, best=None))  # of use to results only
        saved = encode(state, {"problem": ledger.problem})
        status = None if self.status is None else int(self.status)
        kept = changed(state, ledger=changed(state.ledger, problem=None))
        return {"state": saved, "status": status}, Kept(self._run, kept, saved)


def never_finite(state: KSDState) -> bool:
    """Whether a run has not begun yet, for want of a finite value."""
    return state.record.iteration == 0 and not math.isfinite(state.here.value)


def is_same_function(space: Space, old: Evaluated, new: Evaluated) -> bool:
    """Whether nothing but rounding has changed since the last step, as far as can be seen."""
    noise = VALUE_ROUNDINGS * space.eps
    return torch.equal(old.x, new.x) and abs(new.value - old.value) <= noise * abs(old.value)


def taken_up(run: KSDRun, state: KSDState, here: Evaluated, *, same: bool) -> KSDState:
    """The state with value and gradient of a fresh evaluation.

    Where the function is another one (other samples, other parameters), what was learned of the
    curvature is kept, as a preconditioner: the next step has products.
    """
    norm = run.stationarity(here.x, here.gradient)
    record = replace(state.record, value=here.value, gradient_norm=norm)
    state = changed(state, here=here, gradient_norm=norm, record=record)
    if same:
        return state
    rules = changed(
        state.rules,
        stall=state.rules.stall.restarted(norm),
        trust=state.rules.trust.withdrawn(),
    )
    return changed(state, last_decrease=math.nan, broken=False, rules=rules)
