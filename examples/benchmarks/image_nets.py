"""Small nets of different kinds that classify images of 28x28 pixels in ten classes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

WIDTH, PATCH = 32, 7  # of the transformer


class Residual(nn.Module):
    """x + f(norm(x))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        hidden = 2 * width
        self.branch = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


class LastState(nn.Module):
    """A recurrent net that reads an image row by row; its outputs at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(28, 48, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.recurrent(x.unflatten(1, (28, 28)))[0][:, -1]


class Patches(nn.Module):
    """An image as a sequence of embedded patches, with their places."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(PATCH**2, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn((28 // PATCH) ** 2, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        grid = x.unflatten(1, (28 // PATCH, PATCH, 28 // PATCH, PATCH)).transpose(2, 3)
        return self.embed(grid.flatten(3).flatten(1, 2)) + self.places


class Mean(nn.Module):
    """Over the places of a sequence."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


def convolutional() -> nn.Sequential:
    """Two convolutions, one linear layer."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        *(nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(256, 10)),
    )


def residual() -> nn.Sequential:
    """Four residual blocks with layer norm."""
    blocks = (Residual(64) for _ in range(4))
    return nn.Sequential(nn.Linear(784, 64), *blocks, nn.LayerNorm(64), nn.Linear(64, 10))


def lstm() -> nn.Sequential:
    """28 steps."""
    return nn.Sequential(LastState(), nn.Linear(48, 10))


def transformer() -> nn.Sequential:
    """Two layers over 16 patches."""
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return nn.Sequential(Patches(), encoder, Mean(), nn.Linear(WIDTH, 10))


NETS: dict[str, Callable[[], nn.Sequential]] = {
    "convolutional": convolutional,
    "residual": residual,
    "lstm": lstm,
    "transformer": transformer,
}
