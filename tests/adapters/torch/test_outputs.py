"""What models return: one tensor, several, and which of them the loss gets."""

from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ksdmin
from tests.adapters.torch.dense import assert_same, point
from tests.adapters.torch.test_own_loss import ModelOutput

N = 7
Pair = namedtuple("Pair", ["mean", "variance"])


@dataclass
class Prediction:
    mean: Tensor
    variance: Tensor
    note: Tensor | None = None


class Net(nn.Module):
    """A mean and a variance per sample, returned as `form` makes them."""

    def __init__(self, form, variance_shape=(2,)):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.hidden = nn.Linear(3, 4, dtype=torch.float64)
            self.mean = nn.Linear(4, 2, dtype=torch.float64)
            size = max(1, torch.Size(variance_shape).numel())
            self.variance = nn.Linear(4, size, dtype=torch.float64)
        self.form, self.variance_shape = form, variance_shape

    def forward(self, x):
        h = torch.tanh(self.hidden(x))
        variance = F.softplus(self.variance(h)).reshape(len(x), *self.variance_shape)
        return self.form(self.mean(h), variance)


def pair(m, v):
    return m, v


def as_list(m, v):
    return [m, v]


def as_dict(m, v):
    return {"mean": m, "variance": v}


def with_logits(m, v):
    return ModelOutput(loss=None, logits=m, hidden_states=v)


def data(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(N, k, generator=generator, dtype=torch.float64) for k in (3, 2))


def of_pair(m, v, y):
    """A loss of both, by hand."""
    return ((m - y).square() * v + v.sin()).sum(1)


OWN = {
    "tuple": (pair, lambda z, y: of_pair(*z, y)),
    "list": (as_list, lambda z, y: of_pair(*z, y)),
    "namedtuple": (Pair, lambda z, y: of_pair(z.mean, z.variance, y)),
    "dict": (as_dict, lambda z, y: of_pair(z["mean"], z["variance"], y)),
    "dataclass": (Prediction, lambda z, y: of_pair(z.mean, z.variance, y)),
    "nested": (lambda m, v: {"a": (m, [v])}, lambda z, y: of_pair(z["a"][0], z["a"][1][0], y)),
}


def joined(X, y, **options):
    """The same with all outputs in one tensor."""
    model = Net(lambda m, v: torch.cat([m, v], 1))
    return ksdmin.from_torch(model, lambda z, y: of_pair(z[:, :2], z[:, 2:], y), (X, y), **options)


@pytest.mark.parametrize(
    ("name", "curvature"),
    [*((name, None) for name in OWN), ("namedtuple", "hessian"), ("dict", "empirical-fisher")],
)
def test_a_loss_of_several_outputs(name, curvature):
    form, loss = OWN[name]
    options = {"chunk_size": 3, "curvature": curvature}
    problem = ksdmin.from_torch(Net(form), loss, data(), **options)
    assert_same(problem, joined(*data(), **options), 1e-9)


CHOICES = {
    "the logits": (with_logits, None),
    "a name": (as_dict, "mean"),
    "an attribute": (Prediction, "mean"),
    "a field": (Pair, "mean"),
    "an index": (pair, 0),
    "an index of a mapping": (lambda m, v: ModelOutput(logits=m, hidden_states=v), 0),
    "a function": (as_dict, lambda z: z["mean"]),
    "logits of a dict": (lambda m, v: {"logits": m, "loss": v.mean()}, None),
}


@pytest.mark.parametrize("name", CHOICES)
def test_one_of_several_outputs(name):
    form, output = CHOICES[name]
    (X, y), usual = data(), Net(lambda m, v: m)
    one = ksdmin.from_torch(Net(form), nn.MSELoss(), (X, y), output=output)
    other = ksdmin.from_torch(usual, nn.MSELoss(), (X, y))
    assert_same(one, other)


REFUSED = {
    "several for torch's loss": (
        as_dict, {}, nn.MSELoss(),
        r"returned a dict of 'mean': a tensor of shape \(3, 2\), 'variance': .*MSELoss takes one "
        r"tensor\. Choose with output=",
    ),
    "a dict for a Gaussian": (
        as_dict, {}, nn.GaussianNLLLoss(), r"takes one tensor, or a pair \(mean, variance\)",
    ),
    "a tuple of one": (lambda m, v: (m,), {}, F.mse_loss, "MSELoss takes one tensor"),
    "no such name": (as_dict, {"output": "mu"}, nn.MSELoss(), "output='mu': the model returned a "),
    "no such index": (pair, {"output": 2}, nn.MSELoss(), "output=2: the model returned a tuple of"),
    "a name of a tensor": (
        lambda m, v: m, {"output": "real"}, nn.MSELoss(), "output='real': .*a tensor of shape",
    ),
    "no output": (pair, {"output": 1.5}, nn.MSELoss(), "output: expected the name .* not float"),
    "whole numbers": (
        lambda m, v: (m, m.argmax(1)), {}, lambda z, y: z[0].sum(1),
        r"\[1\] is a tensor of int64 of shape \(3,\)",
    ),
    "one number": (
        lambda m, v: (m, v.mean()), {}, nn.MSELoss(), r"\[1\] is a tensor of shape \(\)",
    ),
    "samples along another axis": (
        lambda m, v: (m, v.T), {}, lambda z, y: z[0].sum(1), r"\[1\] is a tensor of shape \(2, 3\)",
    ),
    "no tensor": (lambda m, v: "spam", {}, nn.MSELoss(), "Net returned a str for 3 samples"),
    "nothing": (lambda m, v: {}, {}, nn.MSELoss(), "Net returned an empty dict"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_outputs_that_are_refused(name):
    form, options, loss, message = REFUSED[name]
    with pytest.raises((TypeError, ValueError), match=message):
        ksdmin.from_torch(Net(form), loss, data(), **options)


def test_outputs_that_change_their_shapes():
    model, (X, y) = Net(pair), data()
    problem = ksdmin.from_torch(model, lambda z, y: z[0].sum(1) + z[1].sum(1), (X, y))
    model.form = lambda m, v: (m, v[:, :1])
    with pytest.raises(ValueError, match=r"shapes \[\(2,\), \(1,\)\], but had \[\(2,\), \(2,\)\]"):
        problem.value(problem.x0)


# A Gaussian whose mean and variance are both outputs


GAUSSIANS = pytest.mark.parametrize(
    ("shape", "full", "reduction"),
    [((2,), True, "sum"), ((2,), False, "mean"), ((1,), False, "mean"), ((), False, "mean")],
    ids=["sum, full", "each", "a column", "a number"],
)


@GAUSSIANS
def test_a_gaussian_of_mean_and_variance(shape, full, reduction):
    def by_hand(z, y):
        m, v = z
        each = F.gaussian_nll_loss(m, y, v, full=full, reduction="none")
        return each.mean(1) if reduction == "mean" else each.sum(1)

    loss = nn.GaussianNLLLoss(full=full, reduction=reduction)
    options = {"chunk_size": 3, "curvature": "hessian"}
    problem, right = (
        ksdmin.from_torch(Net(pair, shape), one, data(), **options) for one in (loss, by_hand)
    )
    assert_same(problem, right, 1e-9)


@GAUSSIANS
def test_its_curvature_is_that_of_labels_drawn_from_it(shape, full, reduction):
    """On average: the Gauss-Newton matrix has the Fisher information in the outputs."""
    repeated = tuple(part.repeat(4000, 1) for part in data())
    loss = nn.GaussianNLLLoss(full=full, reduction=reduction)
    fisher, usual = (
        ksdmin.from_torch(Net(pair, shape), loss, repeated, curvature=kind)
        for kind in ("fisher", None)
    )
    v = point(usual, 1.0)
    drawn, expected = (problem.curvature(problem.x0)(v) for problem in (fisher, usual))
    assert (drawn - expected).norm() <= 0.05 * expected.norm()


def test_a_variance_below_eps():
    """As in torch, the loss has eps in its place, and derivatives pay no heed to that."""
    model, (X, y) = Net(pair), data()
    loss = nn.GaussianNLLLoss(eps=0.9)
    problem = ksdmin.from_torch(model, loss, (X, y))
    m, v = model(X)
    assert 0 < (v < 0.9).sum() < v.numel()
    right = loss(m, y, v)
    slopes = torch.autograd.grad(right, list(model.parameters()))
    value, g = problem.value_and_gradient(problem.x0)
    assert value == pytest.approx(right.item(), rel=1e-14)
    torch.testing.assert_close(
        g, torch.cat([p.reshape(-1) for p in slopes]), rtol=1e-12, atol=1e-14
    )


def test_gaussians_that_are_refused():
    (X, y), loss = data(), nn.GaussianNLLLoss()
    with pytest.raises(ValueError, match=r"the variance, is negative .* softplus or exp"):
        ksdmin.from_torch(Net(lambda m, v: (m, -v)), loss, (X, y))
    with pytest.raises(TypeError, match=r"returned a pair .* targets must be one tensor"):
        ksdmin.from_torch(Net(pair), loss, (X, (y, y.exp())))
    with pytest.raises(TypeError, match=r"one tensor, so the targets must be a pair"):
        ksdmin.from_torch(Net(lambda m, v: m), loss, (X, y))
    with pytest.raises(ValueError, match=r"mean of a sample has shape \(2,\), its variance \(3,\)"):
        ksdmin.from_torch(Net(pair, (3,)), loss, (X, y))
    with pytest.raises(ValueError, match=r"outputs have shape \(3, 2\), the targets \(3, 3\)"):
        ksdmin.from_torch(Net(pair), loss, (X, X))


def test_a_variance_that_becomes_negative():
    """No number, rather than a loss of something else."""
    model = Net(lambda m, v: (m, v - 0.2))
    problem = ksdmin.from_torch(model, nn.GaussianNLLLoss(), data())
    x = problem.x0.clone()
    x[-2:] -= 10.0  # the bias of the variance
    assert problem.value(x) != problem.value(x)
