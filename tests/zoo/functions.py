"""Plain functions of tensors, dictionaries, lists and modules."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.zoo.registry import Function, entry, labels, real


def zeros(*shape):
    return torch.zeros(*shape, dtype=torch.float64)


@entry("torch")
def rosenbrock():
    def fun(x):
        return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    return Function(fun, torch.full((6,), -1.0, dtype=torch.float64))


@entry("torch")
def student_t_likelihood():
    def negative_log_likelihood(theta, y):
        location, log_scale, log_freedom = theta
        t = torch.distributions.StudentT(log_freedom.exp() + 1, location, log_scale.exp())
        return -t.log_prob(y).mean()

    x0 = [zeros(()), zeros(()), torch.ones((), dtype=torch.float64)]
    return Function(negative_log_likelihood, x0, (2 * real(40) + 1,))


@entry("torch")
def gaussian_process_marginal_likelihood():
    def fun(log_theta, X, y):
        length, signal, noise = log_theta.exp()
        squares = (X[:, None] - X[None]).square().sum(2)
        eye = torch.eye(len(y), dtype=y.dtype, device=y.device)
        K = signal * torch.exp(-squares / (2 * length**2)) + (noise + 1e-6) * eye
        L = torch.linalg.cholesky(K)
        alpha = torch.cholesky_solve(y[:, None], L)[:, 0]
        return (y @ alpha) / 2 + L.diagonal().log().sum()

    X = real(15, 1)
    return Function(fun, zeros(3), (X, (2 * X[:, 0]).sin() + 0.1 * real(15)))


@entry("torch")
def predator_and_prey_by_runge_kutta():
    """An ordinary differential equation, fitted to its solution."""

    def solve(rates, steps=12, h=0.1):
        a, b, c, d = rates
        state = torch.tensor([1.0, 0.5], dtype=rates.dtype, device=rates.device)

        def slope(s):
            return torch.stack([a * s[0] - b * s[0] * s[1], c * s[0] * s[1] - d * s[1]])

        path = []
        for _ in range(steps):
            k1 = slope(state)
            k2 = slope(state + h / 2 * k1)
            k3 = slope(state + h / 2 * k2)
            state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(state + h * k3))
            path.append(state)
        return torch.stack(path)

    def fun(log_rates, seen):
        return (solve(log_rates.exp()) - seen).square().mean()

    seen = solve(torch.tensor([1.5, 1.0, 1.0, 0.7], dtype=torch.float64))
    return Function(fun, zeros(4), (seen,))


@entry("torch")
def node_classification_on_a_sparse_graph():
    """One graph is no sum over samples: a function of the module."""

    class GraphNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, nodes, edges):
            return torch.sparse.mm(
                edges, self.second(torch.sparse.mm(edges, self.first(nodes)).relu())
            )

    def fun(net, nodes, edges, classes):
        return F.cross_entropy(net(nodes, edges)[:6], classes)

    ring = torch.eye(8, dtype=torch.float64) + torch.roll(torch.eye(8, dtype=torch.float64), 1, 0)
    return Function(fun, GraphNet().double(), (real(8, 3), (ring / 2).to_sparse(), labels(2, 6)))


@entry("torch")
def batch_norm_of_the_whole_set():
    """In train mode the loss is no sum over samples, but a function of the module it is."""
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Tanh())
    net.append(nn.Linear(4, 1))

    def fun(net, x, y):
        return F.mse_loss(net(x), y)

    return Function(fun, net.double(), (real(15, 2), real(15, 1)))


@entry("torch")
def physics_of_a_pendulum_chain():
    """The energy of a hanging chain of springs."""

    def energy(points):
        ends = torch.tensor([[0.0, 0.0], [3.0, 0.0]], dtype=points.dtype, device=points.device)
        chain = torch.cat([ends[:1], points, ends[1:]])
        lengths = (chain[1:] - chain[:-1]).norm(dim=1)
        return 20 * (lengths - 0.5).square().sum() + chain[:, 1].sum()

    return Function(energy, torch.stack([torch.linspace(0.5, 2.5, 5), -torch.rand(5)], 1).double())
