"""Whole models of several parts."""

import torch
from torch import nn

from tests.zoo.registry import Model, entry, labels, mean_of, real


@entry("torch")
def deep_set_with_a_masked_mean():
    class DeepSet(nn.Module):
        def __init__(self):
            super().__init__()
            self.each, self.all = nn.Linear(2, 4), nn.Linear(4, 1)

        def forward(self, members, mask):
            mask = mask[:, :, None]
            pooled = (self.each(members).tanh() * mask).sum(1) / mask.sum(1)
            return self.all(pooled)

    mask = torch.arange(4) < (1 + labels(4, 10))[:, None]
    return Model(DeepSet(), nn.MSELoss(), ((real(10, 4, 2), mask), real(10, 1)))


@entry("torch")
def normalizing_flow():
    """Two coupling layers; the outputs are the latent point and the log-determinant."""

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.nets = nn.ModuleList(
                nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 2)) for _ in range(2)
            )

        def forward(self, x):
            a, b = x[:, :1], x[:, 1:]
            total = 0.0
            for net in self.nets:
                scale, shift = net(a).chunk(2, 1)
                a, b = b * scale.exp() + shift, a
                total = total + scale
            return torch.cat([a, b, total], 1)

    def negative_log_likelihood(z, _):
        return z[:, :2].square().sum(1) / 2 - z[:, 2]

    data = real(15, 2) * 2 + 1, torch.zeros(15)
    return Model(Flow(), negative_log_likelihood, data, mean_of(negative_log_likelihood))
