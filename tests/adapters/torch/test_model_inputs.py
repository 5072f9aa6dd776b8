"""How models are called: positional arguments, keywords, or one argument that is a tree."""

import pytest
import torch
from torch import nn

import ksdmin
from tests.adapters.torch.dense import assert_same
from tests.adapters.torch.test_data_forms import A, B, Sum, Two, Y, plain
from tests.adapters.torch.zoo import Forward


class Named(Sum):
    """Two inputs by name, and one that is not necessary."""

    def forward(self, a, b=None, c=None):
        assert isinstance(a, torch.Tensor)
        assert c is None
        return super().forward(a, b)


class One(Sum):
    """One argument, from which it takes its inputs."""

    def forward(self, batch):
        return super().forward(batch._asdict() if isinstance(batch, Two) else batch)


class AnyKeywords(Sum):
    def forward(self, **inputs):
        return super().forward(**inputs)


class Nested(Sum):
    """A dict as one of two positional arguments."""

    def forward(self, a, more):
        return super().forward(a, more["b"])


CALLS = {
    "positional": (Named, (A, B)),
    "keywords": (Named, {"b": B, "a": A}),
    "namedtuple by name": (Named, Two(A, B)),
    "a dict": (One, {"a": A, "b": B}),
    "a namedtuple": (One, Two(A, B)),
    "any keywords": (AnyKeywords, {"a": A, "b": B}),
    "a dict among others": (Nested, (A, {"b": B})),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    model, inputs = CALLS[name]
    problem = ksdmin.from_torch(model(), nn.MSELoss(), (inputs, Y), chunk_size=3)
    assert_same(problem, plain(chunk_size=3))


def test_a_model_that_writes_into_its_inputs_gets_copies():
    X, Y = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
    kept, net = (
        X.clone(),
        Forward(lambda m, x: m.linear(x.sub_(1.0)), linear=nn.Linear(3, 2)).double(),
    )
    problem = ksdmin.from_torch(net, nn.MSELoss(), (X, Y))
    values = {problem.value(problem.x0) for _ in range(3)}
    problem.curvature(problem.x0)(problem.x0)
    assert len(values) == 1
    assert torch.equal(X, kept)
    assert values == {problem.value(problem.x0, torch.arange(6))}


def test_an_error_in_the_model_tells_what_it_was_called_with():
    Y, net = torch.ones(4, 2), nn.Linear(3, 2)
    with pytest.raises(RuntimeError) as caught:
        ksdmin.from_torch(net, nn.MSELoss(), (torch.ones(4, 3, dtype=torch.uint8), Y))
    called, hint = caught.value.__notes__
    assert called == "the model was called with torch.uint8 (3, 3)"
    assert hint.endswith("pass X.float().")
    with pytest.raises(RuntimeError) as caught:
        ksdmin.from_torch(nn.Linear(1, 2), nn.MSELoss(), (torch.ones(4), Y))
    assert caught.value.__notes__[1].endswith("a column, X[:, None].")
    with pytest.raises(TypeError) as caught:
        ksdmin.from_torch(net, nn.MSELoss(), {"x": torch.ones(4, 3), "y": Y})
    called, hint = caught.value.__notes__
    assert called == "the model was called with {x: torch.float32 (3, 3)}"
    assert hint.startswith("The fields of a dict become keyword arguments")
