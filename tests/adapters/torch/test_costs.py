"""What products cost is counted, and decides on sets and on the exact space."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import ksdmin
from ksdmin._adapters.torch.costs import CALL, CALL_ON_DEVICE, Costs
from ksdmin._problem.values import changed


def made(hidden=8, samples=200):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, 1)).double()
    x = torch.linspace(-1, 1, 2 * samples, dtype=torch.float64).reshape(-1, 2)
    return ksdmin.from_torch(net, nn.MSELoss(), (x, x.prod(1, keepdim=True)))


def test_products_of_a_larger_net_cost_more():
    small, large = made(8).traits, made(80).traits
    assert large.product_cost == pytest.approx(10 * small.product_cost, rel=0.1)
    assert made(8, 50).traits.product_cost == small.product_cost


def test_a_linear_model_is_left_to_the_core():
    x = torch.ones(5, 2)
    assert (
        ksdmin.from_torch(nn.Linear(2, 1), nn.MSELoss(), (x, x[:, :1])).traits.product_cost is None
    )


def test_on_a_processor_fewer_samples_cost_less():
    assert Costs(1e4, CALL).least_set == made().traits.least_set == 0
    assert Costs(1e6, CALL_ON_DEVICE).least_set == CALL_ON_DEVICE / 1e6
    assert Costs(None, CALL_ON_DEVICE).least_set == 0


def test_where_fewer_samples_cost_no_less_the_sets_begin_whole():
    sampled = made()
    whole = changed(sampled, traits=replace(sampled.traits, least_set=200.0))
    for given, size in ((sampled, 10), (whole, 200)):
        res = ksdmin.minimize(given, rng=0, options={"maxiter": 1})
        assert res.history["size_B"][0] == size
    res = ksdmin.minimize(whole, subsets=ksdmin.Subsets(200, 1.0, 20, 20), options={"maxiter": 1})
    assert res.history["size_B"][0] == 20
    res = ksdmin.minimize(whole, options=ksdmin.PAPER | {"maxiter": 1})
    assert res.history["size_B"][0] == 10
