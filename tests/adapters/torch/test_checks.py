"""Models that `from_torch` refuses, or warns of."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy
from torch.utils.checkpoint import checkpoint

import ksdmin
from tests.adapters.torch.dense import from_module
from tests.adapters.torch.zoo import Forward

# Models whose loss is no sum over samples


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.linear(x)


class Wandering(nn.Linear):
    rng = np.random.default_rng(0)

    def forward(self, x):
        return super().forward(x) * self.rng.uniform()


def scripted():
    return torch.jit.script(nn.Linear(3, 2).double())


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Forward(lambda m, x: m.recur(x[None])[0][0], recur=nn.RNN(3, 2, batch_first=True)),
         r"Forward, or its loss, mixes its samples.*batch_first=True"),
        (Forward(lambda m, x: m.linear(x - x.mean(0)), linear=nn.Linear(3, 2)), "its loss, mixes"),
        (Wandering(3, 2), "Wandering is not deterministic"),
        (Counting(), "Counting writes into its buffer 'calls'"),
        # At the start its vectors have converged, and stay the same.
        (nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2), n_power_iterations=5),
         r"writes into its buffer 'parametrizations\.weight\.0\._u'.*eval mode"),
        (Forward(lambda m, x: m.second(m.first(x).detach()),
                 first=nn.Linear(3, 3), second=nn.Linear(3, 2)),
         r"depends on 'first.weight', 'first.bias', but torch"),
        (Forward(lambda m, x: checkpoint(m.layer, x.requires_grad_(), use_reentrant=True),
                 layer=nn.Linear(3, 2)), "use_reentrant=False"),
        (Forward(lambda m, x: torch.fft.irfft(torch.fft.rfft(x) * m.weight, n=2),
                 weight=nn.Parameter(torch.ones(2, dtype=torch.complex128))),
         r"is complex; .*torch\.view_as_complex"),
        (nn.Sequential(nn.LazyLinear(2)), r"not initialised.*Call model\(inputs\) once"),
        (scripted, "give the module that it was made from"),
        (lambda: nn.Sequential(scripted()), "give the module that it was made from"),
        (nn.Sequential(nn.Embedding(2, 2, max_norm=1.0)), "Embedding '0' rescales"),
        (nn.Sequential(nn.Embedding(2, 2, sparse=True)), "Embedding '0' makes sparse"),
    ],
    ids=lambda value: value[:18] if isinstance(value, str) else "",
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_refused_models(model, message):
    model = model if isinstance(model, nn.Module) else model()
    with pytest.raises((RuntimeError, TypeError, ValueError), match=message):
        from_module(model)


def test_the_advice_for_refused_models_works():
    X, y = torch.ones(7, 3), torch.ones(7, 2)
    lazy = nn.Sequential(nn.LazyLinear(2))
    lazy(X)
    assert len(from_module(lazy, (X, y)).x0) == 8
    half = Forward(lambda m, x: m.second(m.first(x).detach()),
                   first=nn.Linear(3, 3).requires_grad_(False), second=nn.Linear(3, 2))  # fmt: skip
    assert len(from_module(half, (X, y)).x0) == 8


def test_outputs_must_be_a_tensor_of_samples():
    with pytest.raises(TypeError, match=r"GRU returned a tuple of 0: .* Choose with output="):
        from_module(nn.GRU(3, 2))
    with pytest.raises(ValueError, match=r"returned shape \(6, 1\) for 3 samples"):
        from_module(nn.Sequential(nn.Linear(3, 2), nn.Flatten(0), nn.Unflatten(0, (-1, 1))))


# A nonlinearity that belongs to the loss


class Functional(nn.Linear):
    def forward(self, x):
        return torch.sigmoid(super().forward(x))


def ending(*modules):
    return nn.Sequential(nn.Linear(3, 2), *modules)


SQUASHED = {
    "sigmoid": (ending(nn.Sigmoid()), nn.BCELoss(), "BCEWithLogitsLoss"),
    "function": (Functional(3, 2), nn.BCELoss(), "BCEWithLogitsLoss"),
    "a function as loss": (ending(nn.Sigmoid()), binary_cross_entropy, "BCEWithLogitsLoss"),
    "reshaped": (ending(nn.Sigmoid(), nn.Unflatten(1, (2, 1)), nn.Flatten()), nn.BCELoss(), "BCEW"),
    "softmax": (ending(nn.LogSoftmax(1)), nn.NLLLoss(), "CrossEntropyLoss"),
}


@pytest.mark.parametrize("name", SQUASHED)
def test_a_squashing_end_is_warned_of_once(name):
    model, loss, better = SQUASHED[name]
    X = torch.ones(8, 3)
    y = torch.ones(8, dtype=torch.int64) if name == "softmax" else torch.full((8, 2), 0.5)
    with pytest.warns(UserWarning, match=f"use {better}") as caught:
        problem = ksdmin.from_torch(model, loss, (X, y))
    assert len(caught) == 1
    assert caught[0].filename == __file__
    problem.curvature(problem.x0)(problem.x0)
    for kind in ("hessian", "empirical-fisher"):  # have nothing to do with the split
        from_module(model, (X, y), loss, curvature=kind)


@pytest.mark.parametrize(
    ("end", "loss", "y"),
    [
        (nn.Softmax(1), nn.CrossEntropyLoss(), torch.tensor([0, 1, 0, 1])),
        (nn.Sigmoid(), nn.BCEWithLogitsLoss(), torch.zeros(4, 2)),
    ],
)
@pytest.mark.parametrize("curvature", ["gauss-newton", "hessian"])
def test_a_nonlinearity_that_the_loss_contains_is_warned_of(end, loss, y, curvature):
    net = nn.Sequential(nn.Linear(3, 2), end)
    with pytest.warns(UserWarning, match="applies it, too. Drop it from the model"):
        ksdmin.from_torch(net, loss, (torch.randn(4, 3), y), curvature=curvature)


def test_no_warning_of_logits():
    logits, y = nn.Sequential(nn.Sigmoid(), nn.Linear(3, 2)), torch.full((8, 2), 0.5)
    from_module(logits, (torch.ones(8, 3), y), nn.BCEWithLogitsLoss())


@pytest.mark.parametrize("n", [2, 3, 8])
def test_a_loss_that_broadcasts_is_refused_however_few_samples_there_are(n):
    X, y = torch.randn(n, 3, dtype=torch.float64), torch.arange(n, dtype=torch.float64)
    net = nn.Linear(3, 1).double()
    with pytest.raises(ValueError, match=r"mixes its samples.*\(n, 1\) and \(n,\)"):
        ksdmin.from_torch(net, lambda z, y: ((z - y) ** 2).mean(1), (X, y))
    with pytest.raises(ValueError, match="mixes its samples"):
        ksdmin.from_torch(net, residuals=[(lambda m, b: m(b[0]) - b[1], (X, y))])


def test_an_own_loss_with_few_ignored_labels():
    class Own(nn.Linear):
        def forward(self, x, labels):
            return {"loss": nn.functional.cross_entropy(super().forward(x), labels)}

    labels = torch.arange(200) % 2
    data = {"x": torch.randn(200, 3, dtype=torch.float64), "labels": labels}
    ksdmin.from_torch(Own(3, 2).double(), data=data)
    labels[[50, 151]] = -100
    with pytest.raises(ValueError, match="is not the mean of its samples' losses"):
        ksdmin.from_torch(Own(3, 2).double(), data=data)
