"""Convolutions of our own: right to the third derivative, and used where a model has any."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

import ksdmin
from ksdmin._adapters.torch.convolution import LeanConvolutions
from tests.adapters.torch.zoo import Forward

KINDS = {
    "groups": (nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (3, 4, 9, 9)),
    "dilation": (nn.Conv3d(2, 3, (1, 2, 3), dilation=(1, 2, 1)), (2, 2, 5, 5, 5)),
    "no bias": (nn.Conv1d(3, 2, 4, bias=False), (3, 3, 8)),
    "transposed": (nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1), (3, 4, 4, 4)),
    "transposed, groups": (nn.ConvTranspose1d(4, 6, 3, dilation=2, groups=2), (3, 4, 7)),
    "same": (nn.Conv2d(2, 3, (3, 5), padding="same"), (3, 2, 6, 6)),
    "same, one side more": (nn.Conv1d(2, 3, 4, padding="same"), (3, 2, 6)),
    "valid": (nn.Conv1d(2, 3, 4, padding="valid"), (3, 2, 6)),
    "circular": (nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"), (3, 2, 6)),
}


def derivatives(module: nn.Module, image: torch.Tensor, mode) -> list[torch.Tensor]:
    """The outputs of a convolution and three derivatives along fixed directions."""
    image = image.clone().requires_grad_()
    varied = [image, *module.parameters()]
    generator = torch.Generator().manual_seed(1)
    with mode:
        z = module(torch.tanh(image))
    found = [z, *torch.autograd.grad(z.tanh().square().sum(), varied, create_graph=True)]
    last = found[1:]
    for _ in range(2):
        along = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in varied]
        last = list(torch.autograd.grad(last, varied, along, create_graph=True))
        found += last
    return [one.detach() for one in found]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_are_those_of_torch(kind):
    module, shape = KINDS[kind]
    image = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mode = LeanConvolutions(jacobian=False)
    ours = derivatives(module.double(), image, mode)
    theirs = derivatives(module, image, nullcontext())
    assert mode.seen == (kind != "same, one side more")
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def conv_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(32, 2)
    ).double()


@pytest.mark.parametrize("curvature", ["gauss-newton", "hessian", "empirical-fisher", "fisher"])
def test_products_are_the_same_with_and_without(curvature):
    X = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    problem = ksdmin.from_torch(
        conv_net(), nn.CrossEntropyLoss(), (X, torch.arange(6) % 2), curvature=curvature
    )
    kernels, x = problem._sums._kernels, problem.x0
    v = torch.randn(x.shape, generator=torch.Generator().manual_seed(3), dtype=x.dtype)
    assert kernels.lean_convolutions
    lean = problem.curvature(x)(v)
    kernels.lean_convolutions = False
    torch.testing.assert_close(lean, problem.curvature(x)(v), rtol=1e-12, atol=1e-14)


def test_output_padding_which_torch_cannot_differentiate_twice():
    """Torch raises "output_padding is not supported" in the third derivative."""
    module = nn.ConvTranspose1d(2, 2, 3, stride=2, output_padding=1).double()
    image = torch.randn(2, 2, 5, dtype=torch.float64)
    assert len(derivatives(module, image, LeanConvolutions(jacobian=False))) == 10


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own
def test_left_to_torch_without_convolutions_and_within_torch_func():
    X, y = torch.randn(5, 1, 4, dtype=torch.float64), torch.randn(5, 1, dtype=torch.float64)
    linear = ksdmin.from_torch(
        nn.Sequential(nn.Flatten(), nn.Linear(4, 1)).double(), nn.MSELoss(), (X, y)
    )
    assert not linear._sums._kernels.lean_convolutions

    def slope(m, x):
        """The derivative of a convolution along one direction of its input."""
        return torch.func.jvp(lambda a: m.conv(a.tanh()), (x,), (x,))[1][:, 0]

    model = Forward(slope, conv=nn.Conv1d(1, 1, 4)).double()
    problem = ksdmin.from_torch(model, nn.MSELoss(), (X, y))
    assert not problem._sums._kernels.lean_convolutions
    assert ksdmin.minimize(problem, options={"maxiter": 2}).fun < problem.value(problem.x0)


@pytest.mark.parametrize("precision", ["high", "bfloat16"])
def test_under_autocast(precision):
    X = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    problem = ksdmin.from_torch(
        conv_net().float(), nn.MSELoss(), (X, torch.ones(6, 2)), precision=precision
    )
    kernels, x = problem._sums._kernels, problem.x0
    assert kernels.lean_convolutions
    lean = problem.curvature(x)(x)
    kernels.lean_convolutions = False
    assert (lean - problem.curvature(x)(x)).norm() < 2e-2 * lean.norm()
