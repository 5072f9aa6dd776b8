"""Whole models of several parts."""

import torch
from torch import nn

from tests.zoo.registry import Model, entry, labels, mean_of, real


@entry("torch")
def mixture_of_experts():
    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(2, 3)
            self.experts = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

        def forward(self, x):
            answers = torch.stack([expert(x).tanh() for expert in self.experts], 1)
            return torch.einsum("ne,neo->no", self.gate(x).softmax(1), answers)

    return Model(Mixture(), nn.MSELoss(), (real(12, 2), real(12, 2)))


@entry("torch")
def graph_net_with_a_fixed_adjacency():
    """A signal on the nodes of one graph is a sample."""

    class GraphNet(nn.Module):
        def __init__(self):
            super().__init__()
            edges = torch.eye(5) + torch.roll(torch.eye(5), 1, 0) + torch.roll(torch.eye(5), -1, 0)
            self.register_buffer("adjacency", edges / 3)
            self.first, self.second = nn.Linear(2, 3), nn.Linear(3, 1)

        def forward(self, nodes):
            z = torch.einsum("ij,njf->nif", self.adjacency, self.first(nodes)).relu()
            return torch.einsum("ij,njf->nif", self.adjacency, self.second(z)).squeeze(2)

    return Model(GraphNet(), nn.MSELoss(), (real(8, 5, 2), real(8, 5)))


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


@entry("torch")
def neural_ode():
    """The flow of a network, by fixed steps of Runge and Kutta."""

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.field = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 2))

        def forward(self, state):
            h = 0.25
            for _ in range(4):
                k1 = self.field(state)
                k2 = self.field(state + h / 2 * k1)
                k3 = self.field(state + h / 2 * k2)
                k4 = self.field(state + h * k3)
                state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            return state

    start = real(12, 2)
    return Model(Flow(), nn.MSELoss(), (start, start.flip(1)))
