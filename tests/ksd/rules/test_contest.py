"""The contest of two kinds of step: who leads, when the other is tried, and who wins."""

import itertools

import pytest

from ksdmin._ksd.rules.contest import FIRST_TURN, TRIAL_SHARE, Contest


def race(first, second, work=(1.0, 0.1), steps=400):
    """Whether each step is of the first kind, where they gain `first(left)` and `second(left)`."""
    contest, left, taken = Contest(), 1.0, []
    for _ in range(steps):
        contest = contest.challenged(work[contest.leads])
        is_first = contest.first_is_next
        gained = (first if is_first else second)(left)
        left -= gained
        contest = contest.after(is_first, gained, work[0] if is_first else work[1])
        taken.append(is_first)
    return taken


def share(rate):
    return lambda left: rate * left


def spent(taken, work=(1.0, 0.1)):
    """The share of the work that went into the first kind."""
    first = sum(taken) * work[0]
    return first / (first + (len(taken) - sum(taken)) * work[1])


def test_the_better_one_gets_most_of_the_work():
    assert spent(race(share(0.1), share(0.001))) > 0.85
    assert spent(race(share(0.01), share(0.01))) < 0.25  # for a tenth of the cost


def test_the_leader_is_challenged_after_some_steps_and_then_ever_more_rarely():
    runs = [
        len(list(group)) for is_first, group in itertools.groupby(race(share(0.05), share(0.0)))
    ]
    turns, trials = runs[::2], runs[1::2]
    assert turns[0] == FIRST_TURN
    assert all(later > 1.5 * earlier for earlier, later in itertools.pairwise(turns[:-1]))
    assert set(trials) == {1}  # a step that gains nothing ends its trial


def test_what_costs_more_than_a_trial_may_is_not_tried():
    dear = 1.01 * TRIAL_SHARE * FIRST_TURN
    taken = race(share(0.05), share(0.9), work=(1.0, dear), steps=FIRST_TURN + 1)
    assert all(taken)
    assert not all(race(share(0.05), share(0.9), work=(1.0, dear), steps=2 * FIRST_TURN))


def test_a_kind_that_becomes_the_better_one_later_takes_the_lead():
    taken = race(lambda left: 0.3 * left if left > 0.05 else 1e-5 * left, share(0.01), steps=600)
    assert all(taken[:FIRST_TURN])
    assert sum(taken[-300:]) < 15


def test_a_trial_goes_on_while_its_steps_are_kept_short():
    contest = Contest()
    for _ in range(FIRST_TURN):
        contest = contest.after(True, 1.0, 1.0)
    contest = contest.challenged(0.1)
    assert not contest.first_is_next
    short = contest.after(False, 0.01, 0.6, kept_short=True)
    assert not short.first_is_next
    assert contest.after(False, 0.01, 0.6).first_is_next


@pytest.mark.parametrize("scale", [2.0**-30, 2.0**30])
def test_scales_of_gains_and_of_work_change_nothing(scale):
    plain = race(share(0.05), share(0.004))
    contest, left, taken = Contest(), scale, []
    for _ in range(len(plain)):
        contest = contest.challenged((1.0, 0.1)[contest.leads] / scale)
        is_first = contest.first_is_next
        gained = (0.05 if is_first else 0.004) * left
        left -= gained
        contest = contest.after(is_first, gained, (1.0 if is_first else 0.1) / scale)
        taken.append(is_first)
    assert taken == plain
