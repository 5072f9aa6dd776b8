"""The rule of the damped step."""

import math

import pytest

from ksdmin._ksd.cost_model import Costs
from ksdmin._ksd.outcome import NextDamping, Outcome
from ksdmin._ksd.rules.damped_step import LARGEST_CUT, SLOW_STEPS, DampedStep, lowered, raised

CHEAP = Costs(1000, 500, 500, None, rows=500.0, product_cost=1e5)
DEAR = Costs(50_000, 20_000, 20_000, None, rows=20_000.0, rank=20_000)


def outcome(before=1.0, after=0.5, **fields):
    given = {"actual": before - after, "predicted_on_C": 1.0, "model_reduction": 1.0}
    return Outcome(**given | {"value": after, "work": 1.0, "step_norm": 3.0} | fields)


def damped(before=1.0, after=0.5, **fields):
    return outcome(before, after, exact=True, **{"damping": NextDamping(0.1, 64, 0.0)} | fields)


def test_it_is_taken_where_it_is_less_work():
    assert DampedStep().worthwhile(CHEAP, 100)
    assert not DampedStep().worthwhile(DEAR, 100)
    assert DampedStep().worthwhile(DEAR.with_rank(500), 100)
    assert not DampedStep.off().worthwhile(CHEAP, 100)


def test_a_device_that_works_while_it_is_told_what_to_do_takes_it_earlier():
    sizes = {"n": 9000, "A": 3000, "B": 3000, "matrix_cost": None, "rows": 3000.0}
    on_host, on_device = (Costs(**sizes, call_cost=call) for call in (1e6, 2e10))
    assert not DampedStep().worthwhile(on_host, 20)
    assert DampedStep().worthwhile(on_device, 20)


def test_the_first_damping_follows_the_scale_of_the_curvature():
    assert DampedStep().start(1e3) == pytest.approx(1e6 * DampedStep().start(1e-3))


def test_the_damping_is_that_of_the_last_step_but_not_less_than_rounding():
    rule = DampedStep().after(damped())
    assert rule.last.value == rule.start(1.0) == 0.1
    assert DampedStep(NextDamping(1e-20, 64, 0.0)).start(1.0) == pytest.approx(1e-15)


def test_the_damping_falls_after_a_good_step_and_rises_ever_faster_after_bad_ones():
    assert lowered(1.0, 1.0) == lowered(1.0, 9.0) == LARGEST_CUT
    assert lowered(1.0, 0.5) == 1.0
    assert lowered(1.0, 0.0) == lowered(1.0, -1.0) == 2.0
    assert raised(*raised(1.0, 2.0)) == (8.0, 8.0)


def test_on_a_plateau_a_krylov_space_is_tried_and_the_better_one_goes_on():
    rule = DampedStep()
    for _ in range(SLOW_STEPS):
        assert rule.worthwhile(CHEAP, 100)
        rule = rule.after(damped(1.0, 0.999))
    assert not rule.worthwhile(CHEAP, 100)
    assert not rule.after(outcome(1.0, 0.9)).worthwhile(CHEAP, 100)
    assert rule.after(outcome(1.0, 0.9995)).worthwhile(CHEAP, 100)


def test_what_a_step_gained_counts_for_its_work():
    rule = DampedStep(slow=SLOW_STEPS).after(damped(1.0, 0.999))
    assert rule.after(outcome(1.0, 0.998, work=10.0)).worthwhile(CHEAP, 100)


def test_a_single_bad_step_of_many_good_ones_counts_for_half():
    rule = DampedStep()
    for _ in range(4):
        rule = rule.after(damped(1.0, 0.5))
    rule = rule.after(damped(1.0, 1.0))
    assert not rule.after(outcome(1.0, 0.6)).worthwhile(CHEAP, 100)
    assert rule.after(outcome(1.0, 0.8)).worthwhile(CHEAP, 100)


def test_what_goes_ever_slower_gives_way():
    rule = DampedStep().after(damped(1.0, 0.9)).after(outcome(1.0, 0.5))
    assert not rule.worthwhile(CHEAP, 100)
    for _ in range(4):
        rule = rule.after(outcome(1.0, 0.99))
    assert rule.worthwhile(CHEAP, 100)


def test_steps_without_products_or_of_unknown_work_and_a_rule_that_is_off_change_nothing():
    rule, off = DampedStep(), DampedStep.off()
    assert rule.after(outcome(measured=False)) is rule
    assert rule.after(outcome(work=math.nan)) is rule
    assert off.after(damped()) is off


def test_finer_arithmetic_begins_with_the_least_damping():
    rule = DampedStep()
    assert rule.in_finer_arithmetic() == rule
    for value in (1e-3, 1e-9, 0.5):
        rule = rule.after(damped(damping=NextDamping(value, 64, 0.1)))
    rule = rule.after(damped(1.0, 1.0)).after(outcome())
    assert not rule.worthwhile(CHEAP, 100)
    finer = rule.in_finer_arithmetic()
    assert finer.last.value == 1e-9
    assert finer.worthwhile(CHEAP, 100)


def test_a_loss_of_zero_is_no_fault():
    assert DampedStep().after(damped(1.0, 0.0)).damped.rate == math.inf
