"""Several outputs, and a model's own loss, on a GPU: what eager computes on the CPU in float64."""

import copy
import logging

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ksdmin

pytestmark = pytest.mark.cuda
N = 40


class Heads(nn.Module):
    """A hidden layer, and two heads that `form` makes the outputs of."""

    def __init__(self, form):
        super().__init__()
        torch.manual_seed(0)
        self.hidden, self.one, self.two = nn.Linear(5, 6), nn.Linear(6, 3), nn.Linear(6, 3)
        self.form = form
        self.double()

    def forward(self, X, labels=None):
        h = self.hidden(X).tanh()
        return self.form(self.one(h), self.two(h), labels)


def gaussian(a, b, labels):
    return a, F.softplus(b)


def as_dict(a, b, labels):
    return {"a": a, "b": b}


def own_losses(a, b, labels):
    return {"loss": F.cross_entropy(a, labels, reduction="none"), "logits": a}


def own_mean(a, b, labels):
    return {"loss": F.cross_entropy(a, labels), "logits": a}


def of_dict(z, y):
    return ((z["a"] - y).square() + z["b"].cosh()).sum(1)


def data():
    generator = torch.Generator().manual_seed(1)
    X, y = (torch.randn(N, k, generator=generator, dtype=torch.float64) for k in (5, 3))
    return X, y, torch.randint(3, (N,), generator=generator)


X, Y, LABELS = data()
CASES = {
    "Gaussian": (gaussian, nn.GaussianNLLLoss(), (X, Y), True),
    "dict": (as_dict, of_dict, (X, Y), True),
    "own losses": (own_losses, None, (X, LABELS), True),
    "own mean": (own_mean, None, (X, LABELS), False),
}


@pytest.mark.parametrize("curvature", ["gauss-newton", "hessian", "empirical-fisher"])
@pytest.mark.parametrize("name", CASES)
def test_as_on_the_cpu(name, curvature, caplog):
    caplog.set_level(logging.WARNING, "ksdmin")
    form, loss, samples, graphed = CASES[name]
    net = Heads(form)
    there = tuple(part.cuda() for part in samples)
    cpu = ksdmin.from_torch(net, loss, samples, curvature=curvature)
    gpu = ksdmin.from_torch(copy.deepcopy(net).cuda(), loss, there, curvature=curvature)
    assert (gpu._sums._graphs is not None) == graphed
    generator = torch.Generator().manual_seed(2)
    for size in (N, 33, 30, N):  # with padding, too
        idx = torch.randperm(N, generator=generator)[:size].sort().values
        v = torch.randn(len(cpu.x0), generator=generator, dtype=torch.float64)
        x = cpu.x0 + 0.1 * v
        here = cpu.value_and_gradient(x, idx, diagonal=True)
        found = gpu.value_and_gradient(x.cuda(), idx.cuda(), diagonal=True)
        assert found[0] == pytest.approx(here[0], rel=1e-12)
        products = cpu.curvature(x, idx)(v), gpu.curvature(x.cuda(), idx.cuda())(v.cuda())
        for one, other in (*zip(here[1:], found[1:], strict=True), products):
            torch.testing.assert_close(other.cpu(), one, rtol=1e-9, atol=1e-11)
    assert not caplog.records  # none that says that it runs without graphs
