"""What products cost is counted, and decides on sets and on the exact space."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import ksdmin
from ksdmin._adapters.torch.costs import Costs
from ksdmin._problem.values import changed
from tests.nets import tanh_net


def made(samples=200):
    """A net without rows of a Jacobian, whose sets begin small."""
    x = torch.linspace(-1, 1, 2 * samples, dtype=torch.float64).reshape(-1, 2)
    return ksdmin.from_torch(
        tanh_net(2, 8, 3).double(), nn.CrossEntropyLoss(), (x, torch.arange(samples) % 3)
    )


def test_on_a_processor_fewer_samples_cost_less():
    assert Costs(1e4, 1e6).least_set == made().traits.least_set == 0
    assert Costs(1e6, 2e10, on_device=True).least_set == 2e4
    assert Costs(None, 2e10, on_device=True).least_set == 0


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


@pytest.mark.skipif(
    not hasattr(TorchDispatchMode, "_should_skip_dynamo"), reason="an older torch has no choice"
)
def test_counting_does_not_import_the_compiler():
    command = """
import sys, torch, ksdmin
X = torch.linspace(-1, 1, 40).reshape(20, 2)
net, loss = torch.nn.Linear(2, 3), torch.nn.CrossEntropyLoss()
problem = ksdmin.from_torch(net, loss, (X, torch.arange(20) % 3))
ksdmin.minimize(problem, options={"maxiter": 2})
print("torch._dynamo" in sys.modules)
"""
    process = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "False"
