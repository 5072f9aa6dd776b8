"""Losses of torch with their settings, and losses that users write."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.zoo.registry import Model, entry, labels, mean_of, real


def net(outputs):
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs))


@entry("torch")
def quantile_loss():
    """Piecewise linear: its Gauss-Newton matrix is zero."""

    def pinball(z, y):
        error = y - z[:, 0]
        return torch.maximum(0.9 * error, -0.1 * error)

    return Model(net(1), pinball, (real(30, 3), real(30)), mean_of(pinball))


@entry("torch")
def huber_loss():
    return Model(net(2), nn.HuberLoss(delta=0.7), (real(15, 3), 2 * real(15, 2)))


@entry("torch")
def log_cosh_loss():
    def log_cosh(z, y):
        error = (z - y).abs()
        return (error + F.softplus(-2 * error)).sum(1)

    return Model(net(2), log_cosh, (real(15, 3), real(15, 2)), mean_of(log_cosh))


@entry("torch")
def binary_cross_entropy_with_pos_weight():
    loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([3.0, 0.5], dtype=torch.float64))
    return Model(net(2), loss, (real(15, 3), labels(2, 15, 2).double()))


@entry("torch")
def cross_entropy_with_weights_and_label_smoothing():
    weight = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)

    def mean(z, y):
        """Torch divides the smoothed part, too, by the sum of the labels' weights."""
        return F.cross_entropy(z, y, weight, label_smoothing=0.1)

    loss = nn.CrossEntropyLoss(weight, label_smoothing=0.1)
    return Model(net(3), loss, (real(15, 3), labels(3, 15)), mean)


@entry("torch")
def cross_entropy_with_ignored_labels():
    targets = labels(3, 15)
    targets[::4] = -1
    return Model(net(3), nn.CrossEntropyLoss(ignore_index=-1), (real(15, 3), targets))


@entry("torch")
def cross_entropy_with_soft_labels():
    return Model(net(3), nn.CrossEntropyLoss(), (real(15, 3), real(15, 3).softmax(1)))


@entry("torch")
def poisson_regression():
    counts = torch.poisson(torch.full((15, 2), 2.0, dtype=torch.float64))
    return Model(net(2), nn.PoissonNLLLoss(), (real(15, 3), counts))


@entry("torch")
def kl_divergence():
    model = nn.Sequential(net(3), nn.LogSoftmax(1))
    loss = nn.KLDivLoss(reduction="batchmean")
    return Model(model, loss, (real(15, 3), real(15, 3).softmax(1)))


@entry("torch")
def gaussian_likelihood_with_known_variance():
    variance = torch.rand(15, 2, dtype=torch.float64) + 0.5

    def mean(z, y):
        return F.gaussian_nll_loss(z, *y)

    return Model(net(2), nn.GaussianNLLLoss(), (real(15, 3), (real(15, 2), variance)), mean)


@entry("torch")
def cosine_embedding():
    def loss(z, y):
        return 1 - F.cosine_similarity(z, y, dim=1)

    return Model(net(3), loss, (real(15, 3), real(15, 3)), mean_of(loss))


@entry("torch")
def focal_loss():
    def focal(z, y):
        log_p = z.log_softmax(1).gather(1, y[:, None])[:, 0]
        return -((1 - log_p.exp()) ** 2) * log_p

    return Model(net(3), focal, (real(15, 3), labels(3, 15)), mean_of(focal))


@entry("torch")
def weights_of_samples_in_the_targets():
    def weighted(z, y):
        target, weight = y
        return weight * (z - target).square().sum(1)

    targets = real(15, 2), torch.rand(15, dtype=torch.float64)
    return Model(net(2), weighted, (real(15, 3), targets), mean_of(weighted))


@entry("torch")
def cox_like_ranking_of_pairs():
    """Two inputs, scored by one net; the first should win."""

    class Scores(nn.Module):
        def __init__(self):
            super().__init__()
            self.score = net(1)

        def forward(self, winner, loser):
            return self.score(winner) - self.score(loser)

    return Model(
        Scores(), nn.SoftMarginLoss(), ((real(15, 3), real(15, 3)), torch.ones(15, 1).double())
    )
