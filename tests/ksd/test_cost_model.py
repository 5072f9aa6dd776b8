"""The cost model: pure functions of sizes."""

import pytest

from ksdmin._ksd.cost_model import Costs, MarginalGain, curvature_samples


@pytest.mark.parametrize("K", [10, 100])
def test_a_few_unknowns_are_cheaper_by_the_matrix_and_many_by_products(K):
    assert Costs(20, 5000, 5000, None).whole_curvature < Costs(20, 5000, 5000, None).krylov(K)
    assert Costs(5000, 5000, 5000, None).whole_curvature > Costs(5000, 5000, 5000, None).krylov(K)


def test_a_step_on_a_matrix_at_hand_costs_little_more_than_a_gradient():
    costs = Costs(300, 50_000, 50_000, None)
    assert costs.gradient < costs.reused < 2 * costs.gradient < costs.whole_curvature


@pytest.mark.parametrize("n", [50, 100])
@pytest.mark.parametrize("samples", [1000, 1_000_000])
def test_the_matrix_of_few_unknowns_is_of_all_samples(n, samples):
    assert curvature_samples(Costs(n, samples, samples, None), 100) == samples


def test_that_of_more_unknowns_is_of_a_part_with_some_samples_for_each():
    B = curvature_samples(Costs(1000, 100_000, 100_000, None), 100)
    assert 4000 <= B < 50_000


def test_very_many_unknowns_begin_without_a_matrix():
    assert curvature_samples(Costs(5000, 20_000, 20_000, None), 100) is None


def test_a_gauss_newton_step_ends_where_its_last_evaluation_gained_less_than_the_step_so_far():
    """For its work, to which the Jacobian and the gradient belong."""
    costs = Costs(10, 1, 1, 1.0, rows=5.0)
    rest = (costs.whole_curvature + costs.gradient) / costs.value
    enough = MarginalGain(1.0, costs)
    each = 1 / (rest + 1)  # what the first evaluation has gained, per unit of work, in halvings
    assert not enough(1 - 0.5, 1)
    assert not enough(1 - 0.5 ** (1 + 1.5 * each), 2)  # the second does better than that
    assert enough(1 - 0.5 ** (1 + 1.5 * each + 0.5 * each), 3)  # the third does not


def test_a_gauss_newton_step_goes_on_while_it_has_gained_nothing():
    enough = MarginalGain(1.0, Costs(10, 1, 1, 1.0, rows=5.0))
    assert not enough(-1.0, 1)
    assert not enough(0.5, 2)
    assert enough(0.5, 3)
    assert enough(1.0, 4)  # there was no more to gain
