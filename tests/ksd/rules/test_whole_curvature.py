"""The damping of Gauss-Newton steps, and when a step takes the whole curvature matrix."""

import math

import pytest

from ksdmin._ksd.cost_model import Costs
from ksdmin._ksd.outcome import NextDamping, Outcome
from ksdmin._ksd.rules.whole_curvature import (
    LARGEST_CUT,
    GaussNewtonDamping,
    NewtonChoice,
    lowered,
    raised,
)


def told(before=1.0, after=0.5, **fields):
    given = {"actual": before - after, "predicted_on_C": 1.0, "model_reduction": 1.0}
    return Outcome(**given | {"value": after, "work": 1.0, "step_norm": 3.0} | fields)


def damped(before=1.0, after=0.5, **fields):
    known = {"damping": NextDamping(0.1, 64, 0.0)} | fields
    return told(before, after, whole_curvature=True, **known)


def test_the_first_damping_follows_the_scale_of_the_curvature():
    start = GaussNewtonDamping().start
    assert start(1e3, least=0.0) == pytest.approx(1e6 * start(1e-3, least=0.0))


def test_the_damping_falls_after_a_good_step_and_rises_ever_faster_after_bad_ones():
    assert lowered(1.0, 1.0) == lowered(1.0, 9.0) == LARGEST_CUT
    assert lowered(1.0, 0.5) == 1.0
    assert lowered(1.0, 0.0) == lowered(1.0, -1.0) == 2.0
    assert raised(*raised(1.0, 2.0)) == (8.0, 8.0)


def test_finer_arithmetic_begins_with_the_least_damping():
    rule = GaussNewtonDamping()
    assert rule.in_finer_arithmetic() == rule
    for value in (1e-3, 1e-9, 0.5):
        rule = rule.after(damped(damping=NextDamping(value, 64, 0.1)))
    assert rule.in_finer_arithmetic().last.value == 1e-9


# When a step takes the whole curvature matrix


CHEAP, DEAR = Costs(50, 5000, 5000, None), Costs(4000, 5000, 5000, None)


def outcome(before=1.0, after=0.1, **fields):
    given = {"actual": 1.0, "predicted_on_C": 1.0, "model_reduction": 1.0}
    given |= {"previous_gradient_norm": before, "gradient_norm": after}
    return Outcome(**given | fields)


def exact(before=1.0, after=0.1, **fields):
    return outcome(before, after, whole_curvature=True, newton_reduction=1.0, **fields)


def reused(before=1.0, after=0.1, **fields):
    return outcome(before, after, new_curvature=False, **fields)


@pytest.mark.parametrize("again", [True, False])
def test_the_matrix_is_taken_where_it_is_less_work(again):
    assert NewtonChoice().worthwhile(CHEAP, 100, reused=again)
    assert not NewtonChoice().worthwhile(DEAR, 100, reused=again)


def test_switched_off_it_is_never_taken():
    off = NewtonChoice.off()
    assert not off.worthwhile(CHEAP, 100, reused=True)
    assert not off.reusable(CHEAP)
    assert off.after(exact()) is off


def test_as_long_as_the_gradient_falls():
    rule = NewtonChoice().after(exact())
    falling, rising = rule.after(reused(1.0, 0.3)), rule.after(reused(1.0, 2.0))
    assert falling.reusable(CHEAP)
    assert not rising.reusable(CHEAP)


def test_a_step_that_is_not_taken_ends_it_at_once():
    rule = NewtonChoice().after(exact()).after(reused(1.0, 0.1))
    assert not rule.after(reused(after=math.nan, accepted=False)).reusable(CHEAP)


def test_the_dearer_a_new_matrix_the_longer_the_old_one_serves():
    rule = NewtonChoice().after(exact(1.0, 1e-3)).after(reused(1.0, 0.8))
    assert rule.reusable(Costs(900, 50_000, 50_000, None))
    assert not rule.reusable(Costs(10, 10, 10, None))


def test_a_poor_step_brings_damped_directions_next_time():
    assert not NewtonChoice().after(exact(actual=0.9)).damped
    assert NewtonChoice().after(exact(actual=0.1)).damped
    assert NewtonChoice().after(exact(actual=math.nan)).damped


@pytest.mark.parametrize("how", [{"accepted": False, "after": math.nan}, {"moved": False}])
def test_a_step_that_leads_nowhere_brings_a_krylov_space(how):
    rule = NewtonChoice().after(exact(**how))
    assert not rule.worthwhile(CHEAP, 100, reused=True)
    assert not rule.reusable(CHEAP)
    assert rule.after(outcome()).worthwhile(CHEAP, 100, reused=True)
