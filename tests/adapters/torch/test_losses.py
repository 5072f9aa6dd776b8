"""Losses: torch's own mean exactly, one loss per sample, and their Hessians in the outputs.

The models here are linear in their parameters: then the Gauss-Newton matrix is the Hessian, which
torch's own loss gives by differentiating twice.
"""

import re
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.functional import hessian
from torch.utils._pytree import tree_map

import ksdmin
from tests.adapters.torch.dense import assert_close, assert_same, directions, multiply

N, D = 9, 3


def drawn(make, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def real(*shape):
    return drawn(lambda: torch.randn(*shape, dtype=torch.float64), sum(shape))


def positive(*shape):
    return real(*shape).exp()


def counts(*shape):
    return drawn(lambda: torch.poisson(torch.full(shape, 2.0, dtype=torch.float64)))


def bits(*shape):
    return (real(*shape) > 0).double()


def signs(*shape):
    return 2 * bits(*shape) - 1


def labels(*shape, classes=4, ignored=None):
    y = drawn(lambda: torch.randint(classes, shape))
    if ignored is not None:
        y.reshape(-1)[::3] = ignored
    return y


def soft(*shape):
    return torch.softmax(real(*shape), 1)


WEIGHT = torch.tensor([0.5, 1.0, 3.0, 0.2], dtype=torch.float64)

SMOOTH = {"label_smoothing": 0.2, "weight": WEIGHT}

# The loss, the shape of a sample's outputs, the targets
LOSSES = {
    "MSE": (nn.MSELoss, {}, (2,), real(N, 2)),
    "MSE of numbers": (nn.MSELoss, {}, (), real(N)),
    "MSE of images": (nn.MSELoss, {}, (2, 3), real(N, 2, 3)),
    "L1": (nn.L1Loss, {}, (2,), real(N, 2)),
    "Huber": (nn.HuberLoss, {"delta": 0.7}, (2,), real(N, 2)),
    "smooth L1": (nn.SmoothL1Loss, {}, (2,), real(N, 2)),
    "soft margin": (nn.SoftMarginLoss, {}, (2,), signs(N, 2)),
    "KL": (nn.KLDivLoss, {}, (4,), soft(N, 4)),
    "BCE": (nn.BCEWithLogitsLoss, {}, (2,), bits(N, 2)),
    "BCE weight": (nn.BCEWithLogitsLoss, {"weight": WEIGHT}, (4,), bits(N, 4)),
    "BCE pos_weight": (nn.BCEWithLogitsLoss, {"pos_weight": WEIGHT}, (4,), soft(N, 4)),
    "CE": (nn.CrossEntropyLoss, {}, (4,), labels(N)),
    "CE weight": (nn.CrossEntropyLoss, {"weight": WEIGHT}, (4,), labels(N)),
    "CE ignore": (nn.CrossEntropyLoss, {}, (4,), labels(N, ignored=-100)),
    "CE ignore a class": (nn.CrossEntropyLoss, {"ignore_index": 2} | SMOOTH, (4,), labels(N)),
    "CE smoothing": (nn.CrossEntropyLoss, {"label_smoothing": 0.2}, (4,), labels(N)),
    "CE soft": (nn.CrossEntropyLoss, {}, (4,), soft(N, 4)),
    "CE soft, smooth": (nn.CrossEntropyLoss, SMOOTH, (4,), soft(N, 4)),
    "CE not normalised": (nn.CrossEntropyLoss, {}, (4,), positive(N, 4)),
    "CE spatial": (nn.CrossEntropyLoss, {}, (4, 2, 2), labels(N, 2, 2)),
    "CE spatial, smooth": (nn.CrossEntropyLoss, SMOOTH, (4, 3), labels(N, 3, ignored=-100)),
    "CE spatial, soft": (nn.CrossEntropyLoss, {"weight": WEIGHT}, (4, 3), soft(N, 4, 3)),
    "NLL": (nn.NLLLoss, {"weight": WEIGHT, "ignore_index": 1}, (4,), labels(N)),
    "Poisson": (nn.PoissonNLLLoss, {}, (2,), counts(N, 2)),
    "Poisson full": (nn.PoissonNLLLoss, {"full": True}, (2,), counts(N, 2)),
    "Gaussian": (nn.GaussianNLLLoss, {}, (2,), (real(N, 2), positive(N, 2))),
    "Gaussian full": (nn.GaussianNLLLoss, {"full": True}, (2,), (real(N, 2), positive(N, 1))),
    "Gaussian alike": (nn.GaussianNLLLoss, {}, (2, 3), (real(N, 2, 3), positive(N, 2))),
}


def linear(shape):
    """A model whose outputs have that shape, with weights that are not small."""
    model = nn.Linear(D, max(1, torch.Size(shape).numel()), dtype=torch.float64)
    model.weight.data = real(*model.weight.shape)
    unflatten = nn.Unflatten(1, shape) if shape else nn.Flatten(0)
    return nn.Sequential(model, unflatten)


def torchs_own(model, loss, X, y):
    """x -> the loss of the whole set, as torch computes it."""

    def value(x):
        weight, bias = x[: model[0].weight.numel()], x[model[0].weight.numel() :]
        z = model[1](F.linear(X, weight.view(model[0].weight.shape), bias))
        return loss(z, *y) if isinstance(y, tuple) else loss(z, y)

    return value


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")  # of KLDivLoss
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", LOSSES)
def test_torchs_own(name, reduction):
    kind, options, shape, y = LOSSES[name]
    model, loss, X = linear(shape), kind(**options, reduction=reduction), real(N, D)
    problem = ksdmin.from_torch(model, loss, (X, y), chunk_size=4)
    own = torchs_own(model, loss, X, y)
    x, samples = problem.x0.clone().requires_grad_(), N if reduction == "sum" else 1
    right = own(x)
    value, g = problem.value_and_gradient(problem.x0)
    assert value * samples == pytest.approx(right.item(), rel=1e-14)
    assert_close(g * samples, torch.autograd.grad(right, x)[0], 1e-13)
    H, V = hessian(own, problem.x0), directions(problem.x0)
    if H.any():
        assert_close(multiply(problem.curvature(problem.x0), V) * samples, H @ V, 1e-12)
    else:
        assert not multiply(problem.curvature(problem.x0), V).any()


FUNCTIONS = {
    nn.CrossEntropyLoss: F.cross_entropy,
    nn.NLLLoss: F.nll_loss,
    nn.MSELoss: F.mse_loss,
    nn.L1Loss: F.l1_loss,
    nn.SmoothL1Loss: F.smooth_l1_loss,
    nn.HuberLoss: F.huber_loss,
    nn.BCEWithLogitsLoss: F.binary_cross_entropy_with_logits,
    nn.PoissonNLLLoss: F.poisson_nll_loss,
    nn.GaussianNLLLoss: F.gaussian_nll_loss,
    nn.SoftMarginLoss: F.soft_margin_loss,
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_functions_of_torch(kind):
    shape, y = next(row[2:] for row in LOSSES.values() if row[0] is kind)
    model, X, function = linear(shape), real(N, D), FUNCTIONS[kind]
    given, named = (ksdmin.from_torch(model, loss, (X, y)) for loss in (function, kind()))
    assert_same(given, named)
    own = torchs_own(model, function, X, y)(given.x0).item()
    assert given.value(given.x0) == pytest.approx(own, rel=1e-14)


def test_poisson_of_a_rate():
    model = nn.Sequential(*linear((2,)), nn.Softplus())
    loss, X, y = nn.PoissonNLLLoss(log_input=False), real(N, D), counts(N, 2)
    problem = ksdmin.from_torch(model, loss, (X, y))
    assert problem.value(problem.x0) == pytest.approx(loss(model(X), y).item(), rel=1e-14)
    assert problem.curvature(problem.x0)(problem.x0).norm() > 0


class Reduced(nn.Module):
    """It has a reduction, and pays no heed to it."""

    reduction = "mean"

    def forward(self, z, y):
        return F.mse_loss(z, y)


ADVICE = "they must be the same: give the targets as y[:, None]"
COLUMN = f"outputs have shape (3, 1), the targets (3,); {ADVICE}"
SHAPE = "for 3 samples: it must return one loss per sample, shape (3,)"
DROP = f"one number {SHAPE}: drop .mean(), or use reduction='none'"
REFUSED = {
    "one number": (lambda z, y: F.mse_loss(z, y), (2,), real(N, 2), DROP),
    "a mean all the same": (Reduced(), (2,), real(N, 2), DROP),
    "two for each": (lambda z, y: (z - y) ** 2, (2,), real(N, 2), f"shape (3, 2) {SHAPE}"),
    "a name": ("mse", (2,), real(N, 2), "expected a torch loss module or a callable"),
    "a class": (
        nn.CrossEntropyLoss,
        (4,),
        labels(N),
        "loss: got the class CrossEntropyLoss; pass an instance: CrossEntropyLoss()",
    ),
    "MSE, broadcast": (nn.MSELoss(), (1,), counts(N), COLUMN),
    "Poisson, broadcast": (nn.PoissonNLLLoss(), (1,), counts(N), COLUMN),
    "BCE, broadcast": (nn.BCEWithLogitsLoss(), (1,), bits(N), COLUMN),
    "Huber, broadcast": (nn.HuberLoss(), (1,), counts(N), COLUMN),
    "one class": (
        nn.CrossEntropyLoss(),
        (1,),
        bits(N, 1),
        "one class, whose probability is always",
    ),
    "a weight for each sample": (
        nn.BCEWithLogitsLoss(weight=positive(N, 1)),
        (1,),
        bits(N, 1),
        "weight has an entry for each sample",
    ),
    "no target": (
        nn.CrossEntropyLoss(),
        (4,),
        torch.full((N,), -100),
        "every target is ignored",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_losses_that_are_refused(name):
    loss, shape, y, message = REFUSED[name]
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        ksdmin.from_torch(linear(shape), loss, (real(N, D), y))


LABELS = torch.arange(N) % 3


@pytest.mark.parametrize(
    ("loss", "outputs", "targets", "told"),
    [
        (nn.CrossEntropyLoss(), 3, LABELS.float(), "pass y.long()"),
        (nn.CrossEntropyLoss(), 3, LABELS.float().numpy(), "pass y.long()"),
        (nn.CrossEntropyLoss(), 3, LABELS[:, None], "pass y[:, 0]"),
        (nn.CrossEntropyLoss(), 2, LABELS, "labels run from 0"),
        (nn.MultiMarginLoss(), 3, LABELS.float(), "pass y.long()"),
        (nn.BCELoss(), 1, LABELS.float()[:, None] / 2, "rather take BCEWithLogitsLoss"),
        (partial(F.cross_entropy, reduction="none"), 3, LABELS.float(), "pass y.long()"),
    ],
)
def test_targets_of_another_kind_get_a_hint(loss, outputs, targets, told):
    net = nn.Linear(D, outputs)
    net.bias.data += 5.0  # whatever is drawn, no output is a probability
    with pytest.raises((RuntimeError, IndexError)) as caught:
        ksdmin.from_torch(net, loss, (real(N, D), targets))
    form, hint = caught.value.__notes__
    assert form.startswith(f"the loss was called with the first 3 of {N} samples, as a check")
    assert told in hint


def test_labels_of_minus_one_are_warned_of():
    y = torch.tensor([1.0, -1.0])[:, None].repeat(4, 1)
    with pytest.warns(UserWarning, match=r"among the first targets are -1 and 1"):
        ksdmin.from_torch(nn.Linear(D, 1), nn.BCEWithLogitsLoss(), (real(8, D), y))


LIKELIHOODS = {
    "MSE": (nn.MSELoss, (2,), real(1, 2)),
    "BCE": (nn.BCEWithLogitsLoss, (2,), bits(1, 2)),
    "CE": (nn.CrossEntropyLoss, (3,), labels(1, classes=3)),
    "CE spatial": (nn.CrossEntropyLoss, (3, 2), labels(1, 2, classes=3)),
    "CE soft": (nn.CrossEntropyLoss, (3,), soft(1, 3)),
    "Poisson": (nn.PoissonNLLLoss, (2,), counts(1, 2)),
    "Gaussian": (nn.GaussianNLLLoss, (2,), (real(1, 2), positive(1, 2))),
}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_labels_drawn_from_the_model(name, reduction):
    """The covariance of their gradients is the Gauss-Newton matrix."""
    kind, shape, y = LIKELIHOODS[name]
    X, ys = tree_map(lambda part: part.repeat(20_000, *[1] * (part.ndim - 1)), (real(1, D), y))
    model, loss = linear(shape), kind(reduction=reduction)
    fisher, usual = (
        ksdmin.from_torch(model, loss, (X, ys), curvature=curvature)
        for curvature in ("fisher", "gauss-newton")
    )
    v = directions(usual.x0, 1)[:, 0]
    drawn, expected = (problem.curvature(problem.x0)(v) for problem in (fisher, usual))
    assert (drawn - expected).norm() <= 0.05 * expected.norm()


def test_ignored_labels_are_not_drawn():
    y = labels(N, ignored=-100)
    loss = nn.CrossEntropyLoss()
    problem = ksdmin.from_torch(linear((4,)), loss, (real(N, D), y), curvature="fisher")
    ignored = (y == -100).nonzero()[:, 0]
    assert not problem.curvature(problem.x0, ignored)(problem.x0).any()


@pytest.mark.parametrize("options", [{"label_smoothing": 0.1}, {"weight": WEIGHT}])
def test_no_likelihood_no_labels(options):
    with pytest.raises(ValueError, match="CrossEntropyLoss does not define"):
        ksdmin.from_torch(linear((4,)), nn.CrossEntropyLoss(**options), (real(N, D), labels(N)),
                          curvature="fisher")  # fmt: skip
