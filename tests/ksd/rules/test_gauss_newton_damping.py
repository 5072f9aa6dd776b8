"""The damping of Gauss-Newton steps, from one to the next."""

import pytest

from ksdmin._ksd.outcome import NextDamping, Outcome
from ksdmin._ksd.rules.whole_curvature import LARGEST_CUT, GaussNewtonDamping, lowered, raised


def told(before=1.0, after=0.5, **fields):
    given = {"actual": before - after, "predicted_on_C": 1.0, "model_reduction": 1.0}
    return Outcome(**given | {"value": after, "work": 1.0, "step_norm": 3.0} | fields)


def damped(before=1.0, after=0.5, **fields):
    known = {"damping": NextDamping(0.1, 64, 0.0)} | fields
    return told(before, after, whole_curvature=True, **known)


def test_the_first_damping_follows_the_scale_of_the_curvature():
    assert GaussNewtonDamping().start(1e3) == pytest.approx(1e6 * GaussNewtonDamping().start(1e-3))


def test_the_damping_is_that_of_the_last_step_but_not_less_than_rounding():
    rule = GaussNewtonDamping().after(damped())
    assert rule.last.value == rule.start(1.0) == 0.1
    assert GaussNewtonDamping(NextDamping(1e-20, 64, 0.0)).start(1.0) == pytest.approx(1e-15)


def test_the_damping_falls_after_a_good_step_and_rises_ever_faster_after_bad_ones():
    assert lowered(1.0, 1.0) == lowered(1.0, 9.0) == LARGEST_CUT
    assert lowered(1.0, 0.5) == 1.0
    assert lowered(1.0, 0.0) == lowered(1.0, -1.0) == 2.0
    assert raised(*raised(1.0, 2.0)) == (8.0, 8.0)


def test_it_falls_as_long_as_each_step_leaves_less():
    rule = GaussNewtonDamping()
    for value, falls in ((0.1, True), (0.03, True), (0.03, False), (0.02, True), (0.2, False)):
        rule = rule.after(damped(damping=NextDamping(value, 64, 0.0)))
        assert rule.falls is falls


def test_other_steps_change_nothing():
    rule = GaussNewtonDamping()
    assert rule.after(told(new_curvature=False)) is rule
    assert rule.after(told()) is rule


def test_finer_arithmetic_begins_with_the_least_damping():
    rule = GaussNewtonDamping()
    assert rule.in_finer_arithmetic() == rule
    for value in (1e-3, 1e-9, 0.5):
        rule = rule.after(damped(damping=NextDamping(value, 64, 0.1)))
    assert rule.in_finer_arithmetic().last.value == 1e-9
