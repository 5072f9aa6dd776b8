"""The rule of the damped space."""

import math

import pytest

from ksdmin._ksd.cost_model import Costs
from ksdmin._ksd.outcome import Outcome
from ksdmin._ksd.rules.damped_space import POWERS, SLOW_STEPS, DampedSpace, damping_of_length

CHEAP = Costs(1000, 500, 500, None, rows=500.0, product_cost=1e5)
DEAR = Costs(50_000, 20_000, 20_000, None, rows=20_000.0)
LENGTHS = ((0.1, 10.0), (1.0, 3.0), (10.0, 1.0))


def outcome(before=1.0, after=0.5, **fields):
    given = {"actual": before - after, "predicted_on_C": 1.0, "model_reduction": 1.0}
    return Outcome(**given | {"value": after, "work": 1.0, "step_norm": 3.0} | fields)


def damped(before=1.0, after=0.5, **fields):
    return outcome(before, after, exact=True, damped_lengths=LENGTHS, **fields)


def test_it_is_taken_where_it_is_less_work():
    assert DampedSpace().worthwhile(CHEAP, 100)
    assert not DampedSpace().worthwhile(DEAR, 100)
    assert not DampedSpace.off().worthwhile(CHEAP, 100)


def test_a_device_that_works_while_it_is_told_what_to_do_takes_it_earlier():
    sizes = {"n": 9000, "A": 3000, "B": 3000, "matrix_cost": None, "rows": 3000.0}
    on_host, on_device = (Costs(**sizes, call_cost=call) for call in (1e6, 2e10))
    assert not DampedSpace().worthwhile(on_host, 20)
    assert DampedSpace().worthwhile(on_device, 20)


def test_the_first_dampings_follow_the_scale_of_the_curvature():
    small, large = DampedSpace().dampings(1e-3), DampedSpace().dampings(1e3)
    assert large == pytest.approx([1e6 * damping for damping in small])
    assert len(small) == len(POWERS)


def test_the_next_dampings_lie_around_that_of_the_length_of_the_step():
    rule = DampedSpace().after(damped())
    assert rule.damping == pytest.approx(1.0)
    assert rule.dampings(1.0)[2] == pytest.approx(1.0)
    assert DampedSpace().after(damped(step_norm=100.0)).damping == pytest.approx(0.1)


@pytest.mark.parametrize(("length", "damping"), [(10.0, 0.1), (3.0, 1.0), (0.1, 10.0)])
def test_damping_of_length(length, damping):
    assert damping_of_length(length, LENGTHS) == pytest.approx(damping)


def test_where_no_step_was_taken_it_is_the_largest():
    rule = DampedSpace().after(damped(accepted=False, step_norm=0.0))
    assert rule.damping == 10.0


def test_no_damping_is_less_than_rounding():
    rule = DampedSpace(damping=1e-20)
    assert min(rule.dampings(1.0)) >= 1e-15


def test_on_a_plateau_a_krylov_space_is_tried_and_the_better_one_goes_on():
    rule = DampedSpace()
    for _ in range(SLOW_STEPS):
        assert rule.worthwhile(CHEAP, 100)
        rule = rule.after(damped(1.0, 0.999))
    assert not rule.worthwhile(CHEAP, 100)
    assert not rule.after(outcome(1.0, 0.9)).worthwhile(CHEAP, 100)
    assert rule.after(outcome(1.0, 0.9995)).worthwhile(CHEAP, 100)


def test_what_a_step_gained_counts_for_its_work():
    rule = DampedSpace(slow=SLOW_STEPS).after(damped(1.0, 0.999))
    assert rule.after(outcome(1.0, 0.998, work=10.0)).worthwhile(CHEAP, 100)


def test_steps_without_products_and_a_rule_that_is_off_change_nothing():
    rule, off = DampedSpace(), DampedSpace.off()
    assert rule.after(outcome(measured=False)) is rule
    assert off.after(damped()) is off


def test_a_loss_of_zero_is_no_fault():
    assert DampedSpace().after(damped(1.0, 0.0)).rate == math.inf
