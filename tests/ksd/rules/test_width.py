"""Width: how many vectors a Krylov space may have."""

import pytest
from hypothesis import given

from ksdmin._ksd.rules.width import Width
from tests.ksd.rules.outcomes import outcome, outcomes


@given(outcomes)
def test_where_products_are_cheap_no_step_changes_it(told):
    assert Width().after(told) == Width()
    assert Width.off().after(told) == Width.off()


@pytest.mark.parametrize(
    ("measured", "accepted", "factor"),
    [(True, True, 2), (True, False, 1), (False, True, 1)],
)
def test_of_differences_each_step_with_products_that_is_taken_allows_twice_as_many(
    measured, accepted, factor
):
    first = Width.of_differences()
    after = first.after(outcome(measured=measured, accepted=accepted))
    assert after.most == factor * first.most
