"""Backward passes that read parameters again, or that torch cannot differentiate, or not well."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import ksdmin
from tests.adapters.torch.dense import assert_close
from tests.adapters.torch.zoo import Forward
from tests.nets import tanh_net
from tests.versions import needs_torch

X = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(6, 2)
DATA = X, X.sin()


def problem_of(model, loss=None, **options):
    return ksdmin.from_torch(model.double(), loss or nn.MSELoss(), DATA, **options)


class Through(nn.Module):
    """A Linear layer, then a function."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.function, self.layer = function, nn.Linear(2, 2)

    def forward(self, x):
        return self.function(self.layer(x))


class Checkpointed(Through):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)


@pytest.mark.parametrize("curvature", ["gauss-newton", "hessian", "fisher", "empirical-fisher"])
def test_checkpoints_compute_activations_at_the_point_itself(curvature):
    """Not at the module's own parameters, which it has back when the backward pass begins."""
    plain, other = (problem_of(m(torch.tanh), curvature=curvature) for m in (Through, Checkpointed))
    x, v = plain.x0 + 0.3, torch.ones_like(plain.x0)
    assert other._model.recomputes
    assert not plain._model.recomputes
    for one, two in zip(
        plain.value_and_gradient(x, diagonal=True)[1:],
        other.value_and_gradient(x, diagonal=True)[1:],
        strict=True,
    ):
        assert_close(two, one)
    assert_close(other.curvature(x)(v), plain.curvature(x)(v))


class Unsteady(torch.autograd.Function):
    """A tanh whose gradient is rounded in another way each time, as that of a convolution is."""

    generator = torch.Generator().manual_seed(0)

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.tanh()

    @staticmethod
    def backward(ctx, g):
        rounding = 1 + 1e-6 * torch.randn(g.shape, generator=Unsteady.generator)
        return g * (1 - ctx.saved_tensors[0].tanh().square()) * rounding


def test_gradients_that_are_not_the_same_each_time_are_not_taken_for_checkpoints():
    """Such a model has Kronecker factors all the same."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 2), Through(Unsteady.apply), nn.Linear(2, 1))
    problem = ksdmin.from_torch(net, nn.MSELoss(), (X.float(), X[:, :1].float()))
    assert not problem._model.recomputes
    assert problem.traits.has_factors


def test_checkpoints_in_a_plain_function_of_a_module():
    plain, other = (
        ksdmin.from_torch(lambda net: net(X).square().mean(), x0=m(torch.tanh).double())
        for m in (Through, Checkpointed)
    )
    x, v = plain.x0 + 0.3, torch.ones_like(plain.x0)
    assert_close(other.value_and_gradient(x)[1], plain.value_and_gradient(x)[1])
    assert_close(other.curvature(x)(v), plain.curvature(x)(v))


@pytest.mark.skipif(not hasattr(torch.compiler, "set_stance"), reason="torch before 2.6")
def test_compiled_modules_run_eagerly():
    calls = []

    def backend(graph, inputs):
        calls.append(graph)
        return graph.forward

    plain = problem_of(Through(torch.tanh), curvature="hessian")
    other = problem_of(torch.compile(Through(torch.tanh), backend=backend), curvature="hessian")
    v = torch.ones_like(plain.x0)
    assert_close(other.curvature(plain.x0)(v), plain.curvature(plain.x0)(v))
    assert not calls
    torch.compile(torch.sin, backend=backend)(torch.ones(2))  # afterwards as before
    assert calls


def test_compiled_modules_of_older_torch_are_refused(monkeypatch):
    monkeypatch.delattr(torch.compiler, "set_stance", raising=False)
    with pytest.raises(TypeError, match=r"compiled by torch.compile.*model\._orig_mod"):
        problem_of(torch.compile(Through(torch.tanh), backend="eager"))


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return z.tanh()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return grad / ctx.saved_tensors[0].cosh() ** 2


class ByNumpy(Once):
    @staticmethod
    def backward(ctx, grad):
        z = ctx.saved_tensors[0].detach().numpy()
        return torch.from_numpy(grad.numpy() / np.cosh(z) ** 2)


class Detached(Once):
    """Nothing raises, but torch does not see that it depends on `grad`."""

    @staticmethod
    def backward(ctx, grad):
        return grad.detach() / ctx.saved_tensors[0].detach().cosh() ** 2


class KeptDerivative(Once):
    """The derivative is computed in the forward pass, where torch does not see it."""

    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(1 / z.cosh() ** 2)
        return z.tanh()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


@pytest.mark.parametrize("curvature", ["gauss-newton", "hessian"])
@pytest.mark.parametrize("function", [Once, ByNumpy, Detached])
def test_without_second_derivatives_products_are_differences_of_gradients(function, curvature):
    with pytest.warns(UserWarning, match="products with the Hessian are differences"):
        problem = problem_of(Through(function.apply), curvature=curvature, l2=0.1)
    exact = problem_of(Through(torch.tanh), curvature="hessian", l2=0.1)
    v, idx = torch.ones_like(exact.x0), torch.tensor([0, 2, 5])
    found, wanted = (p.curvature(p.x0, idx)(v) for p in (problem, exact))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-7)
    res = ksdmin.minimize(problem, rng=0)
    assert res.success
    assert (res.nhev, res.fun) == (0, pytest.approx(ksdmin.minimize(exact, rng=0).fun, rel=1e-6))


def test_without_second_derivatives_fisher_says_so():
    problem = problem_of(Through(Once.apply), curvature="fisher")
    with pytest.raises(ValueError, match=r"autograd\.Function.* of your own"):
        problem.curvature(problem.x0)(problem.x0)


def test_a_plain_function_without_second_derivatives():
    problem = ksdmin.from_torch(lambda x: Once.apply(x).square().sum(), x0=X[0])
    with pytest.raises(RuntimeError, match="the function's gradient, which torch cannot do"):
        problem.curvature(problem.x0)(problem.x0)


def test_a_kept_derivative_is_a_fault_of_the_hessian_only():
    problem = problem_of(Through(KeptDerivative.apply))
    problem.curvature(problem.x0)(problem.x0)
    with pytest.warns(UserWarning, match="products differ from differences of gradients"):
        problem_of(Through(KeptDerivative.apply), curvature="hessian")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weight_norm_is_a_fault_of_the_hessian_only(dtype):
    """Torch's double backward takes the norm for a constant."""
    torch.manual_seed(0)
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(2, 4)), nn.Tanh(), nn.Linear(4, 2))
    problem = ksdmin.from_torch(model.to(dtype), nn.MSELoss(), DATA)
    problem.curvature(problem.x0)(problem.x0)
    with pytest.warns(UserWarning, match="weight_norm is wrong, too"):
        ksdmin.from_torch(model, nn.MSELoss(), DATA, curvature="hessian")


def test_embedding_bag():
    """Torch cannot differentiate its backward pass."""
    needs_torch(2, 6, "from_torch itself already ends with torch's own message")
    net = nn.Sequential(nn.EmbeddingBag(5, 3, mode="mean"), nn.Linear(3, 2)).double()
    words = torch.arange(18).reshape(6, 3) % 5
    with pytest.warns(UserWarning, match=r"embedding_bag.* differences of gradients"):
        problem = ksdmin.from_torch(net, nn.MSELoss(), (words, DATA[1]))
    assert ksdmin.minimize(problem, rng=0).success


def ctc(z, y):
    lengths = torch.full((len(y),), z.shape[1])
    target_lengths = torch.full((len(y),), y.shape[1])
    log_p = z.transpose(0, 1).log_softmax(2)
    return nn.functional.ctc_loss(log_p, y, lengths, target_lengths, reduction="none")


def test_ctc_loss():
    X = torch.linspace(-1, 1, 90, dtype=torch.float64).reshape(6, 5, 3)
    data, net = (X, 1 + torch.arange(12).reshape(6, 2) % 3), nn.Linear(3, 4).double()
    with pytest.warns(UserWarning, match=r"derivatives of the loss.*'empirical-fisher'"):
        problem = ksdmin.from_torch(net, ctc, data)
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 5})
    assert res.fun < res.history[0].value
    problem = ksdmin.from_torch(net, ctc, data, curvature="empirical-fisher")
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 5})
    assert res.fun < res.history[0].value


# Models that differentiate in their forward pass: what is forgotten. (What works: tests/zoo.)


def without_graph(model, x):
    u = model(x.requires_grad_())
    return u - torch.autograd.grad(u.sum(), x)[0]


def without_flag(model, x):
    return torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]


@pytest.mark.parametrize(
    ("residual", "hint"), [(without_graph, "create_graph=True"), (without_flag, "requires_grad_()")]
)
def test_errors_of_torch_come_with_a_hint(residual, hint):
    net = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))
    with pytest.raises(RuntimeError) as raised:
        ksdmin.from_torch(net, residuals=[(residual, torch.rand(9, 1), 1.0)])
    assert any(hint in note for note in raised.value.__notes__)


def retained(m, x):
    x = x.clone().requires_grad_()
    u = m.u(x)
    return torch.autograd.grad(u.sum(), x, retain_graph=True)[0] + u


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_derivative_that_is_taken_for_a_constant_is_refused(dtype):
    model = Forward(retained, u=tanh_net(1, 5, 1)).to(dtype)
    x = torch.linspace(-1, 1, 40, dtype=dtype)[:, None]
    with pytest.raises(ValueError, match=r"gradient of Forward is not .* create_graph=True"):
        ksdmin.from_torch(model, nn.MSELoss(), (x, x.cos()))
    with pytest.raises(ValueError, match=r"is not that of its values") as caught:
        ksdmin.from_torch(model, residuals=[(lambda model, x: model(x), x)])
    assert "in block 0 of residuals=" in caught.value.__notes__


def test_a_module_is_no_function_to_minimise():
    with pytest.raises(TypeError, match=r"fun is a torch module \(Linear\), not its loss"):
        ksdmin.minimize(nn.Linear(2, 1))
