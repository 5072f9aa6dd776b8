"""How models are called: positional arguments, keywords, or one argument that is a tree."""

from collections import namedtuple

import pytest
import torch
from torch import nn

import ksdmin
from tests.adapters.torch.dense import assert_same

N = 7
Fields = namedtuple("Fields", ["a", "b"])


class Keywords(nn.Module):
    """Two inputs by name, one of them not necessary."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(2)
            self.first = nn.Linear(2, 3, dtype=torch.float64)
            self.second = nn.Linear(3, 3, dtype=torch.float64)
            self.head = nn.Linear(3, 2, dtype=torch.float64)

    def forward(self, a, b=None, c=None):
        assert isinstance(a, torch.Tensor)
        assert c is None
        h = self.first(a).tanh()
        return self.head(h if b is None else h * self.second(b).tanh())


class One(Keywords):
    """One argument, from which it takes its inputs."""

    def forward(self, batch):
        if isinstance(batch, Fields):
            return super().forward(batch.a, batch.b)
        return super().forward(batch["a"], batch["b"])


class AnyKeywords(Keywords):
    def forward(self, **inputs):
        return super().forward(inputs["a"], inputs["b"])


class Nested(Keywords):
    """A dict as one of two positional arguments."""

    def forward(self, a, more):
        return super().forward(a, more["b"])


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(N, *shape, generator=generator, dtype=torch.float64)


A, B, Y = draw(2), draw(3, seed=1), draw(2, seed=2)
CALLS = {
    "positional": (Keywords, (A, B)),
    "keywords": (Keywords, {"b": B, "a": A}),
    "namedtuple by name": (Keywords, Fields(A, B)),
    "a dict": (One, {"a": A, "b": B}),
    "a namedtuple": (One, Fields(A, B)),
    "any keywords": (AnyKeywords, {"a": A, "b": B}),
    "a dict among others": (Nested, (A, {"b": B})),
}


class Joined(Keywords):
    """Both inputs as columns of one array."""

    def forward(self, x):
        return super().forward(x[:, :2], x[:, 2:])


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    model, inputs = CALLS[name]
    problem = ksdmin.from_torch(model(), nn.MSELoss(), (inputs, Y), chunk_size=3)
    right = ksdmin.from_torch(Joined(), nn.MSELoss(), (torch.cat([A, B], 1), Y), chunk_size=3)
    assert_same(problem, right, 1e-12)


class Shifting(nn.Module):
    """Writes into its input."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        x -= 1.0
        return self.linear(x)


def test_a_model_that_writes_into_its_inputs_gets_copies():
    X, Y = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
    kept = X.clone()
    problem = ksdmin.from_torch(Shifting().double(), nn.MSELoss(), (X, Y))
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
