"""Physics-informed networks: models that differentiate in their forward pass, in many ways."""

import torch
from torch import nn

from tests.zoo.registry import Function, Model, entry, real


class Field(nn.Module):
    """u(x), or u(x, y); what a subclass returns are derivatives of u."""

    def __init__(self, inputs=1, hidden=5):
        super().__init__()
        self.u = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def one(self, x):
        return self.u(x[None])[0, 0]


def poisson_equation(model):
    """u'' = -pi^2 sin(pi x)."""
    x = torch.linspace(-1, 1, 20, dtype=torch.float64)[:, None]
    return Model(model, nn.MSELoss(), (x, -(torch.pi**2) * torch.sin(torch.pi * x)))


class ByAutogradGrad(Field):
    def forward(self, x):
        x = x.requires_grad_()
        u = self.u(x)
        (du,) = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)
        (d2u,) = torch.autograd.grad(du, x, torch.ones_like(du), create_graph=True)
        return d2u


@entry("torch")
def pinn_by_autograd_grad():
    return poisson_equation(ByAutogradGrad())


class ByJvp(Field):
    def forward(self, x):
        def slope(x):
            return torch.func.jvp(self.u, (x,), (torch.ones_like(x),))[1]

        return torch.func.jvp(slope, (x,), (torch.ones_like(x),))[1]


@entry("torch")
def pinn_by_jvp():
    return poisson_equation(ByJvp())


class ByHessian(Field):
    def forward(self, x):
        return torch.func.vmap(torch.func.hessian(self.one))(x)[:, 0]


@entry("torch")
def pinn_by_hessian():
    return poisson_equation(ByHessian())


class InAMethod(Field):
    """The residual in a method of its own, in train mode, under enable_grad, of a cloned input."""

    def residual(self, t):
        with torch.enable_grad():
            t = t.clone().requires_grad_(True)
            u = self.u(t)
            (du,) = torch.autograd.grad(u.sum(), t, create_graph=True, retain_graph=True)
        return du + 2 * u

    def forward(self, t):
        assert self.training
        return self.residual(t)


@entry("torch")
def pinn_in_a_method_in_train_mode():
    return poisson_equation(InAMethod().train())


class Hamiltonian(nn.Module):
    """A Hamiltonian neural network: the flow is the energy's rotated gradient."""

    def __init__(self):
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(2, 6), nn.Softplus(), nn.Linear(6, 1))

    def forward(self, state):
        slopes = torch.func.vmap(torch.func.grad(lambda s: self.energy(s).squeeze()))(state)
        return torch.stack([slopes[:, 1], -slopes[:, 0]], 1)


@entry("torch")
def hamiltonian_net():
    state = real(20, 2)
    return Model(
        Hamiltonian(), nn.MSELoss(), (state, torch.stack([state[:, 1], -state[:, 0].sin()], 1))
    )


@entry("torch")
def pinn_as_a_function_of_the_module():
    """The whole training loss in one function: residual, boundary, data."""
    net = nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 1)).double()

    def training_loss(net, t):
        t = t.clone().requires_grad_()
        u = net(t)
        (du,) = torch.autograd.grad(u.sum(), t, create_graph=True)
        start = net(torch.zeros_like(t[:1]))
        return (du + u).square().mean() + 10 * (start - 1).square().mean()

    return Function(training_loss, net, (torch.linspace(0, 2, 20, dtype=torch.float64)[:, None],))
