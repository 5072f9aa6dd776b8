"""Some torch models, each with a loss and a few samples, in float64; more are in tests/zoo."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

N = 7


@dataclass(frozen=True)
class Case:
    """A model, torch's loss module, and data."""

    model: nn.Module
    loss: nn.Module
    data: tuple[Any, Any]


class Forward(nn.Module):
    """Named parts, and a forward pass of them."""

    def __init__(self, forward, **parts):
        super().__init__()
        self._forward = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs):
        return self._forward(self, *inputs)


def recurrent(layer, size, outputs):
    """What the last state says."""
    parts = {"layer": layer, "head": nn.Linear(size, outputs)}
    return Forward(lambda m, x: m.head(m.layer(x)[0][:, -1]), **parts)


def attentive(width, heads, hidden, outputs, **options):
    """A layer of a transformer, and the mean of what it gives."""
    layer = nn.TransformerEncoderLayer(width, heads, hidden, batch_first=True, **options)
    parts = {"layer": layer, "head": nn.Linear(width, outputs)}
    return Forward(lambda m, x: m.head(m.layer(x).mean(1)), **parts)


def u_net(width, outputs):
    """From an image to an image: down, up, and the skip between."""

    def forward(m, image):
        fine = m.down(image).tanh()
        coarse = m.inner(F.max_pool2d(fine, 2)).tanh()
        return m.head(torch.cat([fine, m.up(coarse)], 1))

    parts = {"down": nn.Conv2d(1, width, 3, padding=1), "head": nn.Conv2d(2 * width, outputs, 1)}
    inner, up = nn.Conv2d(width, width, 3, padding=1), nn.ConvTranspose2d(width, width, 2, stride=2)
    return Forward(forward, inner=inner, up=up, **parts)


ZOO: dict[str, Callable[[], Case]] = {}


def case(make):
    """Register a case: drawn from a seed of its own, in float64, without touching torch's."""

    def seeded():
        with torch.random.fork_rng():
            torch.manual_seed(len(make.__name__))
            made = make()
            made.model.double()
            return made

    ZOO[make.__name__] = seeded
    return seeded


def real(*shape):
    return torch.randn(N, *shape, dtype=torch.float64)


def labels(classes, *shape):
    return torch.randint(classes, (N, *shape))


@case
def mlp():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    return Case(model, nn.MSELoss(), (real(3), real(2)))


@case
def cnn():
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.Softplus(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8, 3)
    )
    return Case(model, nn.CrossEntropyLoss(), (real(1, 4, 4), labels(3)))


@case
def per_pixel():
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Tanh(), nn.Conv2d(2, 3, 1))
    return Case(model, nn.CrossEntropyLoss(), (real(1, 3, 3), labels(3, 3, 3)))


@case
def transformer():
    model = attentive(4, 2, 5, 2, dropout=0.0, activation="gelu")
    y = torch.bernoulli(torch.full((N, 2), 0.5, dtype=torch.float64))
    return Case(model, nn.BCEWithLogitsLoss(), (real(3, 4), y))


@case
def normed():
    """LayerNorm, BatchNorm with statistics of its own, and dropout that is on."""
    batch_norm = nn.BatchNorm1d(4).eval()
    batch_norm.running_mean.normal_()
    batch_norm.running_var.uniform_(0.5, 2)
    layers = nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), batch_norm, nn.Dropout(0.4)
    model = nn.Sequential(*layers, nn.Linear(4, 2))
    return Case(model, nn.MSELoss(), (real(3), real(2)))


@case
def dropped():
    """Dropout between convolutions, and by function: in no module."""
    model = Forward(
        lambda m, x: m.head(F.dropout(m.filter(x).tanh(), 0.3, m.training).flatten(1)),
        filter=nn.Sequential(nn.Conv1d(1, 2, 2), nn.Dropout1d(0.3)),
        head=nn.Linear(6, 2),
    )
    return Case(model, nn.MSELoss(), (real(1, 4), real(2)))


@case
def tied():
    """Embeddings that are the output weights, too."""
    model = Forward(
        lambda m, words: m.decode(m.mix(m.embed(words).flatten(1)).tanh()),
        embed=nn.Embedding(4, 3),
        mix=nn.Linear(6, 3),
        decode=nn.Linear(3, 4),
    )
    model.decode.weight = model.embed.weight
    return Case(model, nn.CrossEntropyLoss(), (labels(4, 2), labels(4)))


@case
def two_inputs():
    model = Forward(
        lambda m, a, b: m.head(m.pair(a, b).tanh()), pair=nn.Bilinear(2, 3, 3), head=nn.Linear(3, 2)
    )
    return Case(model, nn.MSELoss(), ((real(2), real(3)), real(2)))


@case
def curve():
    """No network: a exp(-b t) + c."""
    model = Forward(
        lambda m, t: m.abc[0] * torch.exp(-m.abc[1] * t) + m.abc[2],
        abc=nn.Parameter(torch.tensor([1.0, 0.5, 0.2])),
    )
    return Case(model, nn.MSELoss(), (real(1), real(1)))
