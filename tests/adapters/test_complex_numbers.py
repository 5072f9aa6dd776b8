"""Complex numbers where real ones belong are an error: their real parts alone had a success."""

import numpy as np
import pytest
import torch
from torch import nn

import ksdmin

X = np.random.default_rng(0).standard_normal((20, 2))
POINTS = torch.tensor(X)


class Complex(nn.Linear):
    def forward(self, x):
        z = super().forward(x)
        return torch.complex(z[:, :1], z[:, 1:])


def net(module=nn.Linear):
    torch.manual_seed(0)
    return module(2, 2).double()


def turned(z):
    return (1 + 1j) * z


def of_torch_outputs():
    return ksdmin.from_torch(net(Complex), nn.MSELoss(), (POINTS, POINTS[:, :1]))


def of_torch_residuals():
    return ksdmin.from_torch(net(), residuals=[(lambda net, x: turned(net(x)), POINTS)])


def of_torch_losses():
    return ksdmin.from_torch(net(), lambda z, y: (turned(z - y) ** 2)[:, 0], (POINTS, POINTS))


def of_autograd_function():
    return ksdmin.from_autograd(lambda w: (turned(w) ** 2).sum(), x0=np.ones(2))


def of_autograd_losses():
    loss, data = lambda z, y: turned(z - y) ** 2, (X, X[:, 0])
    return ksdmin.from_autograd(lambda w, x: x @ w, loss, data, params=np.zeros(2))


def of_autograd_outputs():
    data = X, X[:, 0]
    return ksdmin.from_autograd(
        lambda w, x: turned(x @ w), "squared-error", data, params=np.zeros(2)
    )


def of_autograd_residuals():
    return ksdmin.from_autograd(residuals=[(lambda w, x: turned(x @ w), X)], params=np.zeros(2))


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize(
    ("make", "origin"),
    [
        (of_torch_outputs, "the model"),
        (of_torch_residuals, "r"),
        (of_torch_losses, "loss"),
        (of_autograd_function, "the function"),
        (of_autograd_losses, "loss"),
        (of_autograd_outputs, "loss"),
        (of_autograd_residuals, "r"),
    ],
)
def test_complex_numbers_are_refused(make, origin):
    with pytest.raises(TypeError, match=rf"^{origin} returned .*complex128: expected real numbers"):
        ksdmin.minimize(make(), options={"maxiter": 3})


def test_real_and_imaginary_parts_as_residuals():
    def parts(net, x):
        return torch.view_as_real(turned(net(x)) - 1).flatten(1)

    problem = ksdmin.from_torch(net(), residuals=[(parts, POINTS)])
    res = ksdmin.minimize(problem, rng=0)
    assert res.success
    assert abs(res.fun - 0.25) < 1e-9  # the mean of (z - 1)^2 and z^2, with z = 1 / 2
