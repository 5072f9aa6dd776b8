"""Plain functions of tensors, dictionaries, lists and modules."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.zoo.registry import Function, entry, labels, real


def zeros(*shape):
    return torch.zeros(*shape, dtype=torch.float64)


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
def node_classification_on_a_sparse_graph():
    """One graph is no sum over samples: a function of the module."""

    net = nn.ModuleDict({"first": nn.Linear(3, 4), "second": nn.Linear(4, 2)}).double()

    def fun(net, nodes, edges, classes):
        hidden = torch.sparse.mm(edges, net["first"](nodes)).relu()
        outputs = torch.sparse.mm(edges, net["second"](hidden))
        return F.cross_entropy(outputs[:6], classes)

    ring = torch.eye(8, dtype=torch.float64) + torch.roll(torch.eye(8, dtype=torch.float64), 1, 0)
    return Function(fun, net, (real(8, 3), (ring / 2).to_sparse(), labels(2, 6)))


@entry("torch")
def batch_norm_of_the_whole_set():
    """In train mode the loss is no sum over samples, but a function of the module it is."""
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Tanh())
    net.append(nn.Linear(4, 1))

    def fun(net, x, y):
        return F.mse_loss(net(x), y)

    return Function(fun, net.double(), (real(15, 2), real(15, 1)))
