"""Models that draw random numbers: the same for every verb at the same set of samples."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.adapters.torch.dense import SETS, assert_close, directions, from_module, make, point
from tests.adapters.torch.zoo import ZOO, attentive, recurrent


def lstm():
    """On columns, as steps of one number."""
    net = recurrent(nn.LSTM(1, 2, 2, batch_first=True, dropout=0.5), 2, 2)
    return nn.Sequential(nn.Unflatten(1, (-1, 1)), net)


def attention():
    net = attentive(4, 2, 3, 2, dropout=0.3, activation="gelu")
    return nn.Sequential(nn.Unflatten(1, (-1, 1)), nn.Linear(1, 4), net)


RANDOM = {"normed": lambda: ZOO["normed"]().model, "dropped": None, "recurrent": lstm,
          "attentive": attention}  # fmt: skip


def random_problem(name, **options):
    if name == "dropped":
        return make("dropped", **options)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return from_module(RANDOM[name]().double(), **options)


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize(("chunk", "part"), [(3, "whole"), (100, "set")])
def test_masks_are_frozen(name, chunk, part):
    """Value, gradient, diagonal and product are those of one function."""
    problem = random_problem(name, curvature="hessian", chunk_size=chunk, l2=0.1)
    x, idx, h = point(problem), SETS[part], 1e-5
    v = directions(x, 1)[:, 0]
    value, g = problem.value_and_gradient(x, idx)
    assert problem.value(x, idx) == pytest.approx(value, rel=1e-14)
    if problem.traits.has_diagonal:
        with_diagonal = problem.value_and_gradient(x, idx, diagonal=True)
        assert with_diagonal[0] == pytest.approx(value, rel=1e-14)
        assert_close(with_diagonal[1], g, 1e-13)
    slope = (problem.value(x + h * v, idx) - problem.value(x - h * v, idx)) / (2 * h)
    assert slope == pytest.approx((g @ v).item(), rel=1e-6)
    ahead, behind = (problem.value_and_gradient(x + s * v, idx)[1] for s in (h, -h))
    assert_close(problem.curvature(x, idx)(v), (ahead - behind) / (2 * h), 1e-6)


@pytest.mark.parametrize("name", RANDOM)
def test_every_set_has_masks_of_its_own(name):
    problem, other = random_problem(name), random_problem(name, rng=1)
    x = problem.x0
    few, same, more = torch.arange(3), torch.arange(3), torch.arange(4)
    assert problem.value(x, few) == problem.value(x, same)
    of_one = problem.value(x, more) * 4 - problem.value(x, few) * 3  # sample 3, were masks shared
    assert of_one != pytest.approx(problem.value(x, torch.tensor([3])), rel=1e-3)
    assert problem.value(x) != other.value(x)


@pytest.mark.parametrize("name", ["mlp", "dropped", "recurrent"])
@pytest.mark.parametrize("kind", ["gauss-newton", "fisher"])
def test_the_callers_generator_is_left_alone(name, kind):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        before = torch.get_rng_state()
        problem = make("mlp") if name == "mlp" else random_problem(name, curvature=kind)
        problem.value_and_gradient(problem.x0, diagonal=problem.traits.has_diagonal)
        problem.curvature(problem.x0)(problem.x0)
        assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("rng", [None, 3, -0, np.random.default_rng(0)])
def test_seeds(rng):
    problem = random_problem("dropped", rng=rng)
    assert problem.value(problem.x0) == problem.value(problem.x0)
