"""What cannot work: each error names the cause and the cure."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import ksdmin
from tests.versions import needs_torch
from tests.zoo.registry import labels, real

N = 6


def problem_of(model, data, loss=None, **options):
    return ksdmin.from_torch(model.double(), loss or nn.MSELoss(), data, **options)


def first_product(problem):
    return problem.curvature(problem.x0)(torch.ones_like(problem.x0))


def test_lazy_modules():
    data = real(N, 3), real(N, 2)
    net = nn.Sequential(nn.LazyLinear(2))
    with pytest.raises(ValueError, match=r"not initialised.*Call model\(inputs\) once"):
        problem_of(net, data)
    net(data[0])
    assert len(problem_of(net, data).x0) == 8


def test_complex_parameters():
    class Spectral(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, dtype=torch.complex128))

        def forward(self, x):
            return torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=4)

    with pytest.raises(TypeError, match=r"is complex; .*torch\.view_as_complex"):
        ksdmin.from_torch(Spectral(), nn.MSELoss(), (real(N, 4), real(N, 4)))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_scripted_modules():
    scripted = torch.jit.script(nn.Linear(3, 2).double())
    for model in (scripted, nn.Sequential(scripted)):
        with pytest.raises(TypeError, match="give the module that it was made from"):
            ksdmin.from_torch(model, nn.MSELoss(), (real(N, 3), real(N, 2)))


def test_reentrant_checkpoints():
    class Checkpointed(nn.Linear):
        def forward(self, x):
            return checkpoint(super().forward, x.requires_grad_(), use_reentrant=True)

    with pytest.raises((RuntimeError, ValueError), match="use_reentrant=False"):
        problem_of(Checkpointed(3, 2), (real(N, 3), real(N, 2)))


def test_a_layer_whose_gradient_is_lost():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x):
            return self.second(self.first(x).detach())

    net = Half()
    with pytest.raises(ValueError, match=r"depends on 'first.weight', 'first.bias', but torch"):
        problem_of(net, (real(N, 3), real(N, 2)))
    net.first.requires_grad_(False)
    problem_of(net, (real(N, 3), real(N, 2)))


def test_embedding_bag():
    """Torch cannot differentiate its backward pass."""
    needs_torch(2, 6, "from_torch itself already ends with torch's own message")
    net = nn.Sequential(nn.EmbeddingBag(5, 3, mode="mean"), nn.Linear(3, 2))
    problem = problem_of(net, (labels(5, N, 3), real(N, 2)))
    with pytest.raises(
        RuntimeError, match=r"embedding_bag.*Compute the same with other operations"
    ):
        first_product(problem)


def ctc(z, y):
    lengths = torch.full((len(y),), z.shape[1])
    target_lengths = torch.full((len(y),), y.shape[1])
    log_p = z.transpose(0, 1).log_softmax(2)
    return F.ctc_loss(log_p, y, lengths, target_lengths, reduction="none")


def test_ctc_loss():
    data = real(N, 5, 3), 1 + labels(3, N, 2)
    net = nn.Linear(3, 4)
    with pytest.raises(RuntimeError, match=r"derivatives of the loss.*'empirical-fisher'"):
        first_product(problem_of(net, data, ctc))
    problem = problem_of(net, data, ctc, curvature="empirical-fisher")
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 5})
    assert res.fun < res.history[0].value


def test_jax_loops_without_reverse_mode():
    """Jax says itself what to use instead."""
    jax = pytest.importorskip("jax")

    def fun(x):
        return jax.lax.while_loop(lambda s: s[1] < 3, lambda s: (s[0] ** 2, s[1] + 1), (x, 0))[
            0
        ].sum()

    problem = ksdmin.from_jax(fun, x0=jax.numpy.ones(2))
    with pytest.raises(ValueError, match=r"Reverse-mode differentiation.*lax\.scan"):
        problem.value_and_gradient(problem.x0)
