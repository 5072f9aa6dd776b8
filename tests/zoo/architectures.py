"""Whole models of several parts."""

from itertools import pairwise

import torch
import torch.nn.functional as F
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
def autoencoder():
    sizes = [5, 4, 2, 4, 5]
    layers = [nn.Sequential(nn.Linear(a, b), nn.Sigmoid()) for a, b in pairwise(sizes)]
    x = torch.rand(10, 5, dtype=torch.float64)
    return Model(nn.Sequential(*layers[:-1], layers[-1][0]), nn.BCEWithLogitsLoss(), (x, x))


@entry("torch")
def siamese_net_with_a_contrastive_loss():
    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

        def forward(self, one, other):
            return (self.embed(one) - self.embed(other)).square().sum(1)

    def contrastive(squares, same):
        return torch.where(same, squares, F.softplus(1 - squares))

    data = (real(12, 3), real(12, 3)), labels(2, 12).bool()
    return Model(Siamese(), contrastive, data, mean_of(contrastive))


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
def hypernetwork():
    """One network gives the weights of another, sample by sample."""

    class Hyper(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.Linear(2, 9)

        def forward(self, x, context):
            w = self.weights(context)
            hidden = torch.tanh(w[:, :3] * x + w[:, 3:6])
            return (hidden * w[:, 6:]).sum(1, keepdim=True)

    return Model(Hyper(), nn.MSELoss(), ((real(12, 1), real(12, 2)), real(12, 1)))


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
def variational_autoencoder_with_fixed_noise():
    class Vae(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = nn.Linear(3, 2), nn.Linear(1, 3)

        def forward(self, x, noise):
            mean, log_variance = self.encode(x).chunk(2, 1)
            latent = mean + noise * (log_variance / 2).exp()
            return torch.cat([self.decode(latent.tanh()), mean, log_variance], 1)

    def negative_elbo(z, x):
        rebuilt, mean, log_variance = z[:, :3], z[:, 3], z[:, 4]
        divergence = (mean**2 + log_variance.exp() - 1 - log_variance) / 2
        return (rebuilt - x).square().sum(1) / 2 + divergence

    x = real(12, 3)
    return Model(Vae(), negative_elbo, ((x, real(12, 1)), x), mean_of(negative_elbo))


@entry("torch")
def matrix_factorisation_of_ratings():
    """Users and films by number, as two integer inputs."""

    class Ratings(nn.Module):
        def __init__(self):
            super().__init__()
            self.users, self.films = nn.Embedding(5, 2), nn.Embedding(6, 2)
            self.bias = nn.Embedding(6, 1)

        def forward(self, user, film):
            return (self.users(user) * self.films(film)).sum(1) + self.bias(film)[:, 0]

    return Model(Ratings(), nn.MSELoss(), ((labels(5, 20), labels(6, 20)), real(20)))


@entry("torch")
def wide_and_deep():
    """Categories and numbers, as a tuple of inputs."""

    class WideAndDeep(nn.Module):
        def __init__(self):
            super().__init__()
            self.kind, self.wide = nn.Embedding(4, 2), nn.Linear(3, 1)
            self.deep = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1))

        def forward(self, numbers, kind):
            return self.wide(numbers) + self.deep(torch.cat([numbers, self.kind(kind)], 1))

    inputs = real(12, 3), labels(4, 12)
    return Model(WideAndDeep(), nn.BCEWithLogitsLoss(), (inputs, labels(2, 12, 1).double()))


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


@entry("torch")
def deep_equilibrium_by_unrolling():
    class Equilibrium(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer, self.head = nn.Linear(3, 3), nn.Linear(2, 3), nn.Linear(3, 1)

        def forward(self, x):
            given = self.outer(x)
            z = torch.zeros_like(given)
            for _ in range(8):
                z = torch.tanh(0.5 * self.inner(z) + given)
            return self.head(z)

    return Model(Equilibrium(), nn.MSELoss(), (real(10, 2), real(10, 1)))
