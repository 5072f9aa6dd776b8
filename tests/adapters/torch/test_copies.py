"""Pickles and deep copies of torch problems: the same problem, with a model of its own."""

import copy
import pickle

import pytest
import torch
from torch import nn

import ksdmin
from tests.adapters.torch.dense import assert_same, make
from tests.adapters.torch.test_losses import LOSSES, linear, real
from tests.adapters.torch.test_losses import N as SAMPLES
from tests.adapters.torch.zoo import ZOO

DUPLICATES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda problem: pickle.loads(pickle.dumps(problem)),
}
duplicates = pytest.mark.parametrize("how", DUPLICATES)
# Of others, the forward pass is a lambda, which cannot be pickled.
PICKLED = ["mlp", "cnn", "normed"]
CASES = [("deepcopy", "transformer"), ("deepcopy", "two_inputs")]
CASES += [("pickle", name) for name in PICKLED]


@pytest.mark.parametrize(("how", "name"), CASES)
def test_the_same_numbers(how, name):
    problem = make(name, curvature="fisher", l2=0.1, chunk_size=3)  # whose labels are drawn
    assert_same(DUPLICATES[how](problem), problem)


@duplicates
@pytest.mark.parametrize("name", ["Huber", "BCE weight", "CE spatial, smooth", "Gaussian full"])
def test_losses(name, how):
    kind, options, shape, y = LOSSES[name]
    problem = ksdmin.from_torch(linear(shape), kind(**options), (real(SAMPLES, 3), y))
    assert_same(DUPLICATES[how](problem), problem)


@duplicates
def test_a_model_of_its_own(how):
    case = ZOO["mlp"]()
    problem = ksdmin.from_torch(case.model, case.loss, case.data)
    twin = DUPLICATES[how](problem)
    twin.load(twin.x0 + 1)
    assert torch.equal(nn.utils.parameters_to_vector(case.model.parameters()), problem.x0)
    assert twin.x0.data_ptr() != problem.x0.data_ptr()
