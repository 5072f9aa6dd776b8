"""Set sizes: which sets grow, when, and never beyond the samples that there are."""

from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ksdmin._ksd.rules.set_sizes import SetSizes
from ksdmin._problem.subsets import Sizes
from tests.ksd.rules.outcomes import NAN, better_and_worse, outcome, outcomes


@st.composite
def set_sizes(draw):
    n = draw(st.integers(1, 10**6))
    return SetSizes(Sizes(*draw(st.tuples(*[st.integers(1, n)] * 3))), n)


def all_of(relation, these, those):
    return all(map(relation, astuple(these.sizes), astuple(those.sizes)))


@given(set_sizes(), outcomes, st.booleans(), st.booleans())
def test_sets_never_shrink_and_never_exceed_the_samples(sets, told, stalled, whole):
    after = sets.after(told, stalled=stalled, converged_on_A=whole)
    assert all_of(int.__ge__, after, sets)
    assert max(astuple(after.sizes)) <= sets.n
    assert after.n == sets.n


@given(set_sizes(), better_and_worse())
def test_a_better_reduction_never_gives_larger_sets(sets, reductions):
    predicted, better, worse = reductions
    after = [sets.after(outcome(actual, predicted)) for actual in (better, worse)]
    assert all_of(int.__le__, *after)


@given(set_sizes(), better_and_worse(), st.floats(-10, 10))
def test_where_a_step_is_good_enough_a_better_one_is(sets, reductions, correction):
    predicted, better, worse = reductions
    good, less = (
        sets.after(outcome(actual, predicted, slope_correction=correction * predicted))
        for actual in (better, worse)
    )
    assert less != sets or good == sets


@pytest.mark.parametrize(("actual", "predicted"), [(-1.0, 1.0), (0.1, 1.0), (NAN, 1.0), (1.0, NAN)])
def test_a_bad_step_on_the_right_slope_lets_the_sets_of_model_and_search_grow(actual, predicted):
    after = SetSizes(Sizes(4000, 120, 30), 10_000).after(outcome(actual, predicted)).sizes
    assert (after.B, after.C) > (120, 30)
    assert after.A == 4000


@pytest.mark.parametrize("actual", [-2.0, -0.5, 0.0])
def test_a_wrong_slope_lets_the_gradient_set_grow(actual):
    """Other samples than A's have less slope: that cost the step most of its gain."""
    told = outcome(actual, slope_correction=actual - 1)
    assert SetSizes(Sizes(100, 50, 50), 1000).after(told).sizes == Sizes(200, 50, 50)


def test_noise_is_no_reason_to_grow():
    sets = SetSizes(Sizes(40, 12, 3), 50)
    assert sets.after(outcome(1e-7, 1e-6, noise=1e-6)) == sets


@given(set_sizes(), outcomes)
def test_a_run_that_stalls_lets_all_sets_grow(sets, told):
    after = sets.after(told, stalled=True)
    for name in ("A", "B", "C"):
        size = getattr(after.sizes, name)
        assert size > getattr(sets.sizes, name) or size == sets.n


@given(set_sizes(), outcomes)
def test_a_gradient_set_that_seemed_to_have_converged_is_everything(sets, told):
    assert sets.after(told, converged_on_A=True).sizes.A == sets.n


def test_a_step_of_the_model_that_fails_says_nothing_of_the_sets():
    sets = SetSizes(Sizes(1000, 50, 50), 1000)
    failed = outcome(0.0, 0.0, accepted=False, new_curvature=False)
    assert sets.after(failed) == sets
    assert sets.after(replace(failed, new_curvature=True)).sizes == Sizes(1000, 1000, 1000)
