"""Small nets of different kinds that classify images of 28x28 pixels in ten classes."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from examples.benchmarks.net_suite.modules import LastState, Mean, Patches, Skip

WIDTH, PATCH = 32, 7  # of the transformer


def convolutional() -> nn.Sequential:
    """Two convolutions, one linear layer."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        *(nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(256, 10)),
    )


def residual() -> nn.Sequential:
    """Four residual blocks with layer norm."""
    blocks = (
        Skip(nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)) for _ in range(4)
    )
    return nn.Sequential(nn.Linear(784, 64), *blocks, nn.LayerNorm(64), nn.Linear(64, 10))


def lstm() -> nn.Sequential:
    """28 steps."""
    return nn.Sequential(LastState(48), nn.Linear(48, 10))


def transformer() -> nn.Sequential:
    """Two layers over 16 patches."""
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return nn.Sequential(Patches(WIDTH, PATCH), encoder, Mean(), nn.Linear(WIDTH, 10))


NETS: dict[str, Callable[[], nn.Sequential]] = {
    "convolutional": convolutional,
    "residual": residual,
    "lstm": lstm,
    "transformer": transformer,
}
