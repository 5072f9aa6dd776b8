"""Models that differentiate in their forward pass, as physics-informed nets do."""

import copy

import pytest
import torch
from torch import nn

import ksdmin
from tests.adapters.torch.dense import assert_close

X = torch.linspace(-1, 1, 40, dtype=torch.float64)[:, None]
TARGET = -(torch.pi**2) * torch.sin(torch.pi * X)


class Net(nn.Module):
    """u(x); what a subclass returns are derivatives of u."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.u = nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1)).double()

    def one(self, x):
        return self.u(x[None])[0, 0]


class AutogradTwice(Net):
    def forward(self, x):
        x = x.requires_grad_()
        (du,) = torch.autograd.grad(self.u(x).sum(), x, create_graph=True)
        (d2u,) = torch.autograd.grad(du.sum(), x, create_graph=True)
        return d2u


class AutogradWithItsOwnGrad(Net):
    def forward(self, x):
        with torch.enable_grad():
            x = x.clone().requires_grad_()
            (du,) = torch.autograd.grad(self.u(x).sum(), x, create_graph=True)
        return du


class JvpTwice(Net):
    def forward(self, x):
        def slope(x):
            return torch.func.jvp(self.u, (x,), (torch.ones_like(x),))[1]

        return torch.func.jvp(slope, (x,), (torch.ones_like(x),))[1]


class VmapOfHessian(Net):
    def forward(self, x):
        return torch.func.vmap(torch.func.hessian(self.one))(x)[:, 0]


class VmapOfGrad(Net):
    def forward(self, x):
        slope = torch.func.grad(self.one)
        return torch.func.vmap(torch.func.grad(lambda x: slope(x)[0]))(x)


class ValueAndJvp(Net):
    def forward(self, x):
        return torch.func.jvp(self.u, (x,), (torch.ones_like(x),))[1] + 9 * self.u(x)


# Said by torch itself, of its own forward-mode differentiation.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

MODELS = [AutogradTwice, AutogradWithItsOwnGrad, JvpTwice, VmapOfHessian, VmapOfGrad, ValueAndJvp]
models = pytest.mark.parametrize("model", MODELS)


@models
def test_the_model_and_the_data_are_left_as_they_were(model):
    net, x = model(), X.clone()
    before = copy.deepcopy(net.state_dict())
    problem = ksdmin.from_torch(net, nn.MSELoss(), (x, TARGET))
    ksdmin.minimize(problem, rng=0, options={"maxiter": 2})
    assert not x.requires_grad
    assert all(torch.equal(before[name], p) for name, p in net.state_dict().items())
    assert all(isinstance(p, nn.Parameter) for p in net.parameters())


@models
def test_memory_is_estimated(model):
    problem = ksdmin.from_torch(model(), nn.MSELoss(), (X, TARGET))
    assert 5 * 8 < problem.bytes_per_sample < 100_000


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@models
@pytest.mark.parametrize("graphs", [True, False])
def test_the_same_on_cuda(model, graphs):
    net = model()
    on_cpu = ksdmin.from_torch(net, nn.MSELoss(), (X, TARGET))
    data = X.cuda(), TARGET.cuda()
    problem = ksdmin.from_torch(copy.deepcopy(net).cuda(), nn.MSELoss(), data, graphs=graphs)
    x, v = on_cpu.x0 + 0.1, torch.ones_like(on_cpu.x0)
    assert problem.value(x.cuda()) == pytest.approx(on_cpu.value(x), rel=1e-10)
    for _ in range(2):  # replayed, too
        g = problem.value_and_gradient(x.cuda())[1].cpu()
        assert_close(g, on_cpu.value_and_gradient(x)[1])
        assert_close(problem.curvature(x.cuda())(v.cuda()).cpu(), on_cpu.curvature(x)(v))
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 5})
    assert res.fun < res.history[0].value


# What is forgotten


def without_graph(model, x):
    u = model(x.requires_grad_())
    return u - torch.autograd.grad(u.sum(), x)[0]


def without_flag(model, x):
    return torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]


@pytest.mark.parametrize(
    ("residual", "hint"), [(without_graph, "create_graph=True"), (without_flag, "requires_grad_()")]
)
def test_errors_of_torch_come_with_a_hint(residual, hint):
    net = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    with pytest.raises(RuntimeError) as raised:
        ksdmin.from_torch(net, residuals=[(residual, torch.rand(9, 1), 1.0)])
    assert any(hint in note for note in raised.value.__notes__)


class Retained(Net):
    def forward(self, x):
        x = x.clone().requires_grad_()
        u = self.u(x)
        return torch.autograd.grad(u.sum(), x, retain_graph=True)[0] + u


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_derivative_that_is_taken_for_a_constant_is_refused(dtype):
    model, x, y = Retained().to(dtype), X.to(dtype), TARGET.to(dtype)
    with pytest.raises(ValueError, match=r"gradient of Retained is not .* create_graph=True"):
        ksdmin.from_torch(model, nn.MSELoss(), (x, y))
    with pytest.raises(ValueError, match=r"is not that of its values") as caught:
        ksdmin.from_torch(model, residuals=[(lambda model, x: model(x), x)])
    assert "in block 0 of residuals=" in caught.value.__notes__


def test_a_module_is_no_function_to_minimise():
    with pytest.raises(TypeError, match=r"fun is a torch module \(Linear\), not its loss"):
        ksdmin.minimize(torch.nn.Linear(2, 1))
