"""The benchmark of KSD's own share: evaluations that are written down, and made again."""

import argparse
from functools import partial

import pytest
import torch
from torch import nn

import ksdmin
from examples.harness.net_training.instrumented_problems import Timed
from examples.harness.net_training.replayed_problem import Recorded, Repeated
from ksdmin._problem.protocol import OPTIONAL_VERBS
from tests.nets import tanh_net

SCRIPT = "own_share"


def problem(loss, device="cpu"):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    classes = loss == "cross entropy"
    targets = (inputs[:, 0] > 0).long() if classes else inputs[:, :2].sin()
    data = inputs.to(device), targets.to(device)
    widths = (3, 2) if loss == "linear" else (3, 4, 2)
    model = tanh_net(*widths).double().to(device)
    kind = nn.CrossEntropyLoss() if classes else nn.MSELoss()
    return ksdmin.from_torch(model, kind, data, l2=1e-4)


@pytest.mark.parametrize("loss", ["squares", "cross entropy"])
def test_every_evaluation_of_the_run_is_made_again(script, loss):
    args = argparse.Namespace(device="cpu", repeats=3)
    found = script.measure(partial(problem, loss), args)
    assert found["iterations"] == 3
    assert found["evaluations"]["run"] == found["evaluations"]["made again"] > 3
    assert found["seconds"] > 0
    assert found["seconds of the evaluations alone"] > 0
    assert ("factors" in found) == (loss == "cross entropy")  # squares have exact steps
    if loss == "cross entropy":
        assert found["factors"] == 1  # they serve more iterations than these three
        assert found["seconds of the factors"] > 0
        assert found["milliseconds of a solve"] > 0


@pytest.mark.parametrize("wrapper", [Recorded, Timed])
@pytest.mark.parametrize("loss", ["squares", "cross entropy", "linear"])
def test_wrappers_have_every_verb_that_traits_may_promise(wrapper, loss):
    """Also those that no run above has asked for."""
    wrapped = wrapper(problem(loss))
    verbs = {*OPTIONAL_VERBS.values(), "value", "value_and_gradient", "curvature"}
    missing = {verb for verb in verbs if not callable(getattr(wrapped, verb, None))}
    assert not missing
    not_made_again = {"counting", "in_finer_arithmetic"}
    assert all(hasattr(Repeated, verb) for verb in verbs - not_made_again)
