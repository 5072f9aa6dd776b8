"""Complex numbers where real ones belong are an error: their real parts alone had a success."""

import numpy as np
import pytest
import torch
from torch import nn

import ksdmin
from ksdmin import from_autograd, from_torch
from tests.adapters.torch.zoo import Forward

X = np.random.default_rng(0).standard_normal((20, 2))
POINTS = torch.tensor(X)
TARGETS = POINTS[:, :1]


def net():
    torch.manual_seed(0)
    return nn.Linear(2, 2).double()


def turned(z):
    return (1 + 1j) * z


TURNED = Forward(lambda m, x: turned(m.layer(x))[:, :1], layer=net())


LINE = {"params": np.zeros(2)}
PROBLEMS = {  # whose numbers they are, and the problem
    "outputs": ("the model", lambda: from_torch(TURNED, nn.MSELoss(), (POINTS, TARGETS))),
    "residuals": ("r", lambda: from_torch(net(), residuals=[(lambda m, x: turned(m(x)), POINTS)])),
    "losses": (
        "loss",
        lambda: from_torch(net(), lambda z, y: (turned(z - y) ** 2)[:, 0], (POINTS, POINTS)),
    ),
    "a function of autograd": (
        "the function",
        lambda: from_autograd(lambda w: (turned(w) ** 2).sum(), x0=np.ones(2)),
    ),
    "losses of autograd": (
        "loss",
        lambda: from_autograd(
            lambda w, x: x @ w, lambda z, y: turned(z - y) ** 2, (X, X[:, 0]), **LINE
        ),
    ),
    "outputs of autograd": (
        "loss",
        lambda: from_autograd(lambda w, x: turned(x @ w), "squared-error", (X, X[:, 0]), **LINE),
    ),
    "residuals of autograd": (
        "r",
        lambda: from_autograd(residuals=[(lambda w, x: turned(x @ w), X)], **LINE),
    ),
}


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("name", PROBLEMS)
def test_complex_numbers_are_refused(name):
    origin, make = PROBLEMS[name]
    with pytest.raises(TypeError, match=rf"^{origin} returned .*complex128: expected real numbers"):
        ksdmin.minimize(make(), options={"maxiter": 3})


def test_real_and_imaginary_parts_as_residuals():
    def parts(net, x):
        return torch.view_as_real(turned(net(x)) - 1).flatten(1)

    problem = from_torch(net(), residuals=[(parts, POINTS)])
    res = ksdmin.minimize(problem, rng=0)
    assert res.success
    assert abs(res.fun - 0.25) < 1e-9  # the mean of (z - 1)^2 and z^2, with z = 1 / 2
