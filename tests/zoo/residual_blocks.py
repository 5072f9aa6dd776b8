"""Sums of squared residuals in blocks: physics-informed nets, penalties, fits."""

import torch
from torch import nn

from tests.zoo.registry import Model, entry


def net():
    return nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1))


def laplace(net, points):
    """-Laplace u, by reverse mode."""
    points = points.detach().requires_grad_()
    (du,) = torch.autograd.grad(net(points).sum(), points, create_graph=True)
    seconds = [
        torch.autograd.grad(du[:, i].sum(), points, create_graph=True)[0][:, i] for i in (0, 1)
    ]
    return -seconds[0] - seconds[1]


def heat(net, batch):
    """u_t - u_xx, by forward mode over (x, t)."""
    points, source = batch["points"], batch["source"]
    x, t = (torch.eye(2).to(points)[i].expand_as(points) for i in (0, 1))

    def along(direction):
        return lambda p: torch.func.jvp(net, (p,), (direction,))[1]

    u_xx = torch.func.jvp(along(x), (points,), (x,))[1]
    return along(t)(points) - u_xx - source


class Blocks(Model):
    """The residuals of all blocks, each scaled so that the sum of squares is the objective."""

    def outputs(self, x):
        free = dict(self.model.named_parameters())
        ends = torch.tensor([p.numel() for p in free.values()]).cumsum(0).tolist()
        parts = torch.tensor_split(x, ends[:-1])
        named = {
            f"net.{name}": part.view_as(p)
            for (name, p), part in zip(free.items(), parts, strict=True)
        }
        holder = _Holder(self.model)
        found = []
        for r, data, *weight in self.data:
            batch = () if data is None else (data,)
            z = torch.func.functional_call(holder, named, (r, *batch)).reshape(-1)
            found.append(z * ((weight or [1.0])[0] / len(z)) ** 0.5)
        return torch.cat(found)

    def mean_loss(self, z):
        return z.square().sum()


class _Holder(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, r, *batch):
        return r(self.net, *batch)


def blocks(*blocks):
    return Blocks(net(), None, blocks, given=lambda own: {"residuals": list(own.data)})


def points(n):
    return torch.rand(n, 2, dtype=torch.float64)


@entry("torch")
def poisson_with_a_border():
    return blocks((laplace, points(11)), (lambda net, p: net(p)[:, 0] - p[:, 0], points(5), 10.0))


@entry(
    "torch",
)
def heat_equation_with_a_source():
    batch = {"points": points(9), "source": torch.randn(9, 1, dtype=torch.float64)}
    return blocks((heat, batch, 0.5), (lambda net, p: net(p) - 1.0, points(4)))


@entry("torch")
def a_fit_with_a_penalty_on_the_weights():
    return blocks(
        (lambda net, b: net(b[0]) - b[1], (points(8), torch.randn(8, 1, dtype=torch.float64))),
        (lambda net: torch.cat([p.reshape(-1) for p in net.parameters()]), None, 1e-2),
    )
