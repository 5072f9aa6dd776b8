"""Convolutions and the norms that go with them."""

import torch
from torch import nn

from tests.zoo.registry import Model, entry, labels, real


@entry("torch")
def conv1d_with_in_place_relu():
    model = nn.Sequential(
        nn.Conv1d(2, 3, 3), nn.ReLU(inplace=True), nn.Conv1d(3, 2, 2), nn.Flatten(), nn.Linear(4, 1)
    )
    return Model(model, nn.MSELoss(), (real(10, 2, 5), real(10, 1)))


@entry("torch")
def group_norm():
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Mish(), nn.Flatten(), nn.Linear(16, 1)
    )
    return Model(model, nn.MSELoss(), (real(8, 1, 4, 4), real(8, 1)))


class ResidualBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv1d(channels, channels, 3, padding=1)
        self.second = nn.Conv1d(channels, channels, 3, padding=1)

    def forward(self, x):
        z = torch.relu_(self.first(x))
        z = self.second(z)
        z += x
        return z


@entry("torch")
def residual_net():
    model = nn.Sequential(ResidualBlock(2), ResidualBlock(2), nn.Flatten(), nn.Linear(8, 1))
    return Model(model, nn.SmoothL1Loss(), (real(10, 2, 4), real(10, 1)))


class UNet(nn.Module):
    """Down, up, and the skip between; every pixel has a class."""

    def __init__(self):
        super().__init__()
        self.down, self.inner = nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1)
        self.up, self.head = nn.ConvTranspose2d(2, 2, 2, stride=2), nn.Conv2d(4, 3, 1)

    def forward(self, image):
        fine = torch.tanh(self.down(image))
        coarse = torch.tanh(self.inner(nn.functional.max_pool2d(fine, 2)))
        return self.head(torch.cat([fine, self.up(coarse)], 1))


@entry("torch")
def u_net_for_segmentation_with_ignored_pixels():
    masks = labels(3, 4, 4, 4)
    masks[:, 0] = 255
    return Model(UNet(), nn.CrossEntropyLoss(ignore_index=255), (real(4, 1, 4, 4), masks))
