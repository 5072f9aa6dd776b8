"""Trust: when a step may rest on the quasi-Newton model, and what such a step has to gain."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ksdmin._ksd.rules.trust import WORTH, Trust
from tests.ksd.rules.outcomes import NAN, outcome

NOISE = 1e-14


def record(iteration, value, passes, gradient_norm=1.0):
    return SimpleNamespace(
        iteration=iteration, value=value, passes=passes, gradient_norm=gradient_norm
    )


START = record(0, 3.0, 0)


def after(trust, start, end, *, measured=True, predicted=10.0, same_function=True):
    gain, noise = start.value - end.value, NOISE * abs(start.value)
    told = outcome(gain, predicted if measured else NAN, measured=measured, noise=noise)
    return trust.after(told, start, end, same_function=same_function)


@st.composite
def runs(draw):
    """The records of a run, and whether each step had products."""
    values = draw(st.lists(st.floats(-1e50, 1e50) | st.just(NAN), min_size=2, max_size=8))
    passes = sorted(draw(st.tuples(*[st.floats(0, 1e4)] * len(values))))
    norms = draw(st.tuples(*[st.floats(0, 1e50)] * len(values)))
    records = [record(i, *line) for i, line in enumerate(zip(values, passes, norms, strict=True))]
    return records, draw(st.tuples(*[st.booleans()] * (len(values) - 1)))


def followed(trust, run):
    records, measured = run
    for start, end, with_products in zip(records, records[1:], measured, strict=False):
        trust = after(trust, start, end, measured=with_products)
        yield trust


@given(runs())
def test_off_never_trusts(run):
    for trust in followed(Trust.off(run[0][0]), run):
        assert not trust.trusted
        assert not trust.on_samples(run[0][-1], paired=True).trusted


@given(runs())
def test_a_step_that_does_not_go_down_ends_the_trust(run):
    records, measured = run
    for start, end, with_products in zip(records, records[1:], measured, strict=False):
        trust = after(Trust(START, trusted=True), start, end, measured=with_products)
        assert not trust.trusted or end.value < start.value


def test_a_step_with_products_that_gained_something_makes_it_trusted():
    assert after(Trust(START), START, record(1, 1.0, 20)).trusted


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
    assert not after(Trust(START), START, **{"end": record(1, 1.0, 20), **spoilt}).trusted


def test_a_step_of_the_model_has_to_gain_a_share_for_its_work():
    trust = after(Trust(START), START, record(1, 1.0, 20))
    enough = WORTH * trust.gain * 2  # in two passes
    start = record(1, 1.0, 20)
    for gained, norm, trusted in (
        (1.1 * enough, 2.0, True),
        (0.9 * enough, 2.0, False),
        (0.9 * enough, 0.5, True),  # but the gradient falls
    ):
        end = record(2, 1 - gained, 22, gradient_norm=norm)
        assert after(trust, start, end, measured=False).trusted is trusted


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_better_step_of_the_model_is_never_trusted_less(one, other):
    trust, start = after(Trust(START), START, record(1, 1.0, 20)), record(1, 1.0, 20)
    less, more = (
        after(trust, start, record(2, 1 - gained, 22, 2.0), measured=False)
        for gained in sorted([one, other])
    )
    assert more.trusted >= less.trusted


def test_trust_can_be_withdrawn():
    trust = after(Trust(START), START, record(1, 1.0, 20))
    assert trust.trusted
    assert not trust.withdrawn().trusted


@pytest.mark.parametrize("paired", [True, False])
def test_after_samples_the_model_is_trusted_where_gradients_have_taught_it(paired):
    end = record(5, 1.0, 20)
    trust = Trust(START, gain=3.0).on_samples(end, paired=paired)
    assert (trust.end, trust.trusted) == (end, paired)
    assert np.isnan(trust.gain)
