"""The contest of two kinds of step: who leads, when the other is tried, and who wins."""

import pytest

from ksdmin._ksd.rules.contest import FIRST_TURN, Contest


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


def test_a_kind_that_becomes_the_better_one_later_takes_the_lead():
    taken = race(lambda left: 0.3 * left if left > 0.05 else 1e-5 * left, share(0.01), steps=600)
    assert all(taken[:FIRST_TURN])
    assert sum(taken[-300:]) < 15


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
