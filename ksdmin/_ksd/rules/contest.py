"""Contest: which of two kinds of step gains more for its cost, found out in turns.

One kind leads. After a turn of its steps the other kind gets a trial, for a small share of the work
of that turn. It takes the lead if it gains more than the leader is expected to gain for the same
work; the gains of the two halves of the turn show how the leader's gains fall. If the leader stays,
its next turn is twice as long. So a kind that never suits costs little, and a kind that becomes
better later is found before the run has taken twice as long. A kind whose step costs more than a
trial may cost is not tried yet. If a step of the leader gains nothing, the other kind is tried at
once: near the end of a run rounding may hide the gains of one kind, and not of the other.

Gains are differences of values, and only their ratios count. So a constant that is added to a loss,
its sign and its scale do not change a decision. Work comes from the cost model, never from a clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ksdmin._problem.values import changed

FIRST_TURN = 4  # the number of steps in the first turn
TRIAL_SHARE = 0.125  # the share of the work of a turn that a trial may cost


@dataclass(frozen=True)
class Gain:
    """What some steps have gained, and what they have cost."""

    gained: float = 0.0
    work: float = 0.0

    def __add__(self, other: Gain) -> Gain:
        return Gain(self.gained + other.gained, self.work + other.work)


@dataclass(frozen=True)
class LeadersTurn:
    """The steps of the leader since it was last challenged, in two halves."""

    first: Gain = Gain()
    second: Gain = Gain()
    steps: int = 0

    @property
    def work(self) -> float:
        """What the turn has cost."""
        return self.first.work + self.second.work

    def then(self, step: Gain, length: float) -> LeadersTurn:
        """With one more step; the turn ends after the work `length`."""
        later = self.steps >= FIRST_TURN // 2 and 2 * self.work >= length
        if later:
            return LeadersTurn(self.first, self.second + step, self.steps + 1)
        return LeadersTurn(self.first + step, self.second, self.steps + 1)

    @property
    def decay(self) -> float:
        """How fast the gain for each unit of work falls from one half to the other."""
        earlier, later = (half.gained / half.work for half in (self.first, self.second))
        if not earlier > 0 or not later > 0:
            return 0.0 if later > 0 else math.inf
        return (math.log(earlier) - math.log(later)) / (self.work / 2)

    def expected(self, work: float) -> float:
        """What the leader would gain for this much more work."""
        if not self.second.gained > 0:
            return 0.0
        rate, decay = self.second.gained / self.second.work, self.decay
        if not decay > 0:
            return rate * work
        now = rate * math.exp(-decay * self.second.work / 2)
        return now * -math.expm1(-decay * work) / decay


@dataclass(frozen=True)
class Contest:
    """Who leads, and how the last steps of both went."""

    leads: bool = True  # whether the first of the two kinds leads
    turn: LeadersTurn = LeadersTurn()  # that of the leader
    length: float = 0.0  # the work after which it ends
    trial: Gain | None = None  # the steps of the other kind, during its trial
    idle: bool = False  # whether the last step of the leader gained nothing

    @property
    def is_new(self) -> bool:
        """Whether no step has been made."""
        return not self.length and not self.turn.steps

    @property
    def first_is_next(self) -> bool:
        """Whether the next step is of the first kind."""
        return self.leads == (self.trial is None)

    def challenged(self, cost: float, *, at_once: bool = True) -> Contest:
        """The contest before a step; `cost` is that of a step of the other kind.

        `at_once`: that kind is tried whatever it costs if the leader's step gained nothing.
        """
        turn = self.turn
        if self.idle and at_once and self.trial is None:
            return changed(self, trial=Gain())
        long_enough = turn.steps >= FIRST_TURN and turn.second.work and turn.work >= self.length
        if self.trial is not None or not long_enough or cost > TRIAL_SHARE * turn.work:
            return self
        return changed(self, trial=Gain())

    def after(self, first: bool, gained: float, work: float, kept_short: bool = False) -> Contest:
        """The contest after a step of the first kind, or of the other kind.

        A step that was `kept_short` shows less than its kind can do, so the trial goes on after it.
        """
        if first != self.first_is_next:  # one kind stood in for the other
            return self if self.trial is None else Contest(self.leads, length=2 * self.turn.work)
        step = Gain(gained, work)
        if self.trial is None:
            turn = self.turn.then(step, self.length)
            return changed(self, turn=turn, idle=not gained > 0)
        trial = self.trial + step
        most = self.turn.work if kept_short else TRIAL_SHARE * self.turn.work
        if gained > 0 and trial.work < most:
            return changed(self, trial=trial)
        if trial.gained > self.turn.expected(trial.work):
            return Contest(not self.leads, LeadersTurn(trial), length=self.turn.work)
        return Contest(self.leads, length=2 * self.turn.work)
