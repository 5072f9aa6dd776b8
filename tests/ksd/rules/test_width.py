"""Width: whether a Krylov space on samples may be wide."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ksdmin._ksd.rules.set_sizes import SetSizes
from ksdmin._ksd.rules.width import Width, too_wide
from ksdmin._problem.subsets import Sizes
from tests.ksd.rules.outcomes import NAN, better_and_worse, outcome, outcomes

widths = st.sampled_from([Width(), Width(wide=False), Width.off()])


@given(widths, better_and_worse(), st.booleans())
def test_a_better_reduction_never_gives_a_narrower_space(width, reductions, wide):
    predicted, better, worse = reductions
    good, less = (
        width.after(outcome(actual, predicted, wide=wide)).wide for actual in (better, worse)
    )
    assert good >= less


@given(widths, outcomes)
def test_a_step_in_a_narrow_space_says_nothing(width, told):
    assert width.after(replace(told, wide=False)) == width


@pytest.mark.parametrize(("actual", "predicted"), [(-1.0, 1.0), (0.1, 1.0), (NAN, 1.0), (1.0, NAN)])
def test_after_a_bad_step_in_a_wide_space_they_are_narrow_until_the_sets_grow(actual, predicted):
    after = Width().after(outcome(actual, predicted, wide=True))
    assert not after.wide
    assert not after.after(outcome()).wide
    assert after.on_larger_sets() == Width()


@given(outcomes, st.booleans())
def test_off_stays_off(told, wide):
    told = replace(told, wide=wide)
    assert Width.off().after(told) == Width.off().on_larger_sets() == Width.off()


@pytest.mark.parametrize("accepted", [True, False])
def test_the_sets_stay_where_the_width_is_to_blame(accepted):
    sets = SetSizes(Sizes(10_000, 300, 300), 10_000)
    bad = outcome(-1.0, accepted=accepted, wide=True)
    assert too_wide(bad)
    assert sets.after(bad, too_wide=True) == sets
    assert sets.after(bad) != sets


def test_a_run_that_has_stalled_gets_larger_sets_all_the_same():
    """Or else it would end."""
    sets = SetSizes(Sizes(10_000, 300, 300), 10_000)
    bad = outcome(-1.0, accepted=False, wide=True)
    assert sets.after(bad, too_wide=True, stalled=True).sizes.B > 300
