"""When a step may rest on the quasi-Newton model, and what such a step has to gain."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ksdmin._ksd.rules.quasi_newton import Forecast, QuasiNewtonChoice, StepTaken
from tests.ksd.rules.outcomes import NAN, outcome

NOISE = 1e-14


def record(iteration, value, passes, gradient_norm=1.0):
    return SimpleNamespace(
        iteration=iteration, value=value, passes=passes, gradient_norm=gradient_norm
    )


START = record(0, 3.0, 0)


def step(start, end, *, new_curvature=True, predicted=10.0, forecast=None, same_function=True):
    gain, noise = start.value - end.value, NOISE * abs(start.value)
    told = outcome(
        gain, predicted if new_curvature else NAN, new_curvature=new_curvature, noise=noise
    )
    return StepTaken(told, start, end, forecast, same_function)


def after(choice, start, end, **given):
    return choice.after(step(start, end, **given))


@st.composite
def runs(draw):
    """The records of a run, and whether each step had products."""
    values = draw(st.lists(st.floats(-1e50, 1e50) | st.just(NAN), min_size=2, max_size=8))
    passes = sorted(draw(st.tuples(*[st.floats(0, 1e4)] * len(values))))
    norms = draw(st.tuples(*[st.floats(0, 1e50)] * len(values)))
    records = [record(i, *line) for i, line in enumerate(zip(values, passes, norms, strict=True))]
    return records, draw(st.tuples(*[st.booleans()] * (len(values) - 1)))


def followed(choice, run):
    records, measured = run
    for start, end, with_products in zip(records, records[1:], measured, strict=False):
        choice = after(choice, start, end, new_curvature=with_products)
        yield choice


@given(runs())
def test_off_never_trusts(run):
    for choice in followed(QuasiNewtonChoice.off(run[0][0]), run):
        assert not choice.may_follow
        assert not choice.on_samples(step(*run[0][-2:]), paired=True).may_follow


@given(runs())
def test_a_step_that_does_not_go_down_ends_it(run):
    records, measured = run
    for start, end, with_products in zip(records, records[1:], measured, strict=False):
        choice = after(
            QuasiNewtonChoice(START, may_follow=True), start, end, new_curvature=with_products
        )
        assert not choice.may_follow or end.value < start.value


def test_a_step_with_products_that_gained_something_allows_others():
    assert after(QuasiNewtonChoice(START), START, record(1, 1.0, 20)).may_follow


@pytest.mark.parametrize(
    "spoilt",
    [
        {"end": record(1, 3.0, 20)},
        {"end": record(1, 4.0, 20)},
        {"end": record(1, NAN, 20)},
        {"end": record(1, 3.0 - 1e-14, 20)},  # rounding hides it
        {"predicted": 2.0},  # the function is quadratic: products are exact, and few
        {"same_function": False},
    ],
)
def test_otherwise_not(spoilt):
    assert not after(
        QuasiNewtonChoice(START), START, **{"end": record(1, 1.0, 20), **spoilt}
    ).may_follow


# A step with products that halved what was left in ten passes, from 3 to 2 where 1 is the minimum.
def test_a_slope_next_to_nothing_is_forgotten():
    forecast = Forecast(5.0, 1e-310).followed_by(1.0, 1.0)
    assert forecast.slopes_left == np.inf
    assert forecast.followed_by(0.5, 0.5) == Forecast(0.5, 0.5)


@given(st.floats(1e-3, 1e3), st.floats(0.01, 0.99))
def test_a_true_forecast_stays_true(left, lowered):
    """Where the slope is always the same share of what is left, that share is kept."""
    slopes_left = 7.0
    forecast = Forecast(left, left / slopes_left, slopes_left)
    forecast = forecast.followed_by(left * lowered, left * lowered / slopes_left)
    assert forecast.slopes_left == pytest.approx(slopes_left)


@given(runs(), st.floats(1e-300, 1e300))
def test_it_is_decided_whatever_the_values_are(run, slope):
    for choice in followed(QuasiNewtonChoice(run[0][0]), run):
        for here in run[0]:
            forecast = choice.foreseen(here.value, slope)
            assert choice.pays(here, forecast) in (True, False)
            assert choice.pays_on_samples(here, forecast) in (True, False)


@pytest.mark.parametrize("paired", [True, False])
def test_after_samples_the_model_serves_where_gradients_have_taught_it(paired):
    end = record(5, 4.0, 20)
    choice = QuasiNewtonChoice(START).on_samples(
        step(START, end, same_function=False), paired=paired
    )
    assert (choice.end, choice.start, choice.may_follow) == (end, None, paired)


def test_a_step_of_the_model_that_fails_on_samples_ends_it():
    end = record(1, 3.0, 22)
    assert (
        not QuasiNewtonChoice(START)
        .on_samples(step(START, end, new_curvature=False), paired=True)
        .may_follow
    )
