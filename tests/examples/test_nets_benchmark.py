"""The benchmark of other nets: they train, and a run becomes a line of the table."""

import pytest
import torch
from torch import nn

import ksdmin
from examples.benchmarks.image_nets import NETS
from examples.benchmarks.nets import cells_of


@pytest.mark.parametrize("name", NETS)
def test_every_net_classifies_images(name):
    torch.manual_seed(0)
    data = torch.rand(30, 784), torch.randint(0, 10, (30,))
    problem = ksdmin.from_torch(NETS[name](), nn.CrossEntropyLoss(), data)
    everything = ksdmin.Subsets(30, 1.0, 1.0, 1.0, disjoint=False)
    res = ksdmin.minimize(problem, subsets=everything, options={"maxiter": 2})
    assert res.fun < problem.value(problem.x0)


def test_a_line_has_the_least_value_so_far_at_each_share_of_the_time():
    trace = {
        "seconds": [0.0, 1.0, 2.0, 4.0, 8.1, 9.0],
        "value": [9.0, 8.0, 8.5, 3.0, 1.0, 0.5],
        "test": [90.0, 80.0, 70.0, 60.0, 5.0, 2.0],
    }
    run = {"net": "lstm", "method": "adam", "rate": 1e-3, "seconds": 8.0, "trace": trace}
    assert cells_of(run) == ["lstm", "adam, rate 0.001", "8", "8", "3", "1", "5%"]
