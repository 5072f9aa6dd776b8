"""The nets, as torch starts them."""

from __future__ import annotations

from torch import nn

from examples.benchmarks.net_suite.modules import (
    SIDE,
    CausalAttention,
    Characters,
    KindsSecond,
    LastState,
    Mean,
    Patches,
    Scale,
    Skip,
    residual_block,
)
from examples.benchmarks.net_suite.samples import KINDS, LENGTH

CLASSES = 10


def conv() -> nn.Sequential:
    """Two convolutions, two linear layers."""
    return nn.Sequential(
        nn.Unflatten(1, (1, SIDE, SIDE)),
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(3136, 64), nn.ReLU(), nn.Linear(64, CLASSES)),
    )


def residual() -> nn.Sequential:
    """Three residual blocks of convolutions with group norm."""
    return nn.Sequential(
        nn.Unflatten(1, (1, SIDE, SIDE)),
        *(nn.Conv2d(1, 32, 3, stride=2, padding=1), residual_block(32), residual_block(32)),
        *(nn.Conv2d(32, 64, 3, stride=2, padding=1), residual_block(64)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES)),
    )


def lstm() -> nn.Sequential:
    """28 steps, 128 units."""
    return nn.Sequential(LastState(128), nn.Linear(128, CLASSES))


def transformer() -> nn.Sequential:
    """An encoder of three layers over 16 patches."""
    width = 64
    layer = nn.TransformerEncoderLayer(
        width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
    )
    encoder = nn.TransformerEncoder(layer, 3, nn.LayerNorm(width), enable_nested_tensor=False)
    return nn.Sequential(Patches(width, 7), encoder, Mean(), nn.Linear(width, CLASSES))


def causal() -> nn.Sequential:
    """Four layers that predict the next character."""
    width, layers = 96, []
    for _ in range(4):
        wide = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        layers += [
            Skip(nn.LayerNorm(width), CausalAttention(width, 4)),
            Skip(nn.LayerNorm(width), *wide),
        ]
    ends = nn.LayerNorm(width), nn.Linear(width, KINDS), KindsSecond()
    return nn.Sequential(Characters(KINDS, LENGTH, width), *layers, *ends)


def perceptron() -> nn.Sequential:
    """784-512-256-10."""
    return nn.Sequential(
        *(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU()),
        nn.Linear(256, CLASSES),
    )


def u_net() -> nn.Sequential:
    """Three scales, from a noisy image to a clean one."""
    scales = Scale(16, 32, Scale(32, 64, nn.Conv2d(64, 64, 3, padding=1)))
    return nn.Sequential(
        nn.Unflatten(1, (1, SIDE, SIDE)),
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), scales),
        *(nn.Conv2d(16, 1, 3, padding=1), nn.Flatten()),
    )
