"""HF: conjugate gradients, damping, backtracking, and what it does without positive curvature."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import Bounds, rosen, rosen_der, rosen_hess_prod

import ksdmin
from tests.linear_models import squares
from tests.nets import tanh_net

rng = np.random.default_rng(0)
A = rng.standard_normal((30, 12))
H = A.T @ A / 30 + 0.1 * np.eye(12)
b = rng.standard_normal(12)


@pytest.mark.parametrize("given", [{"hessp": rosen_hess_prod}, {}])
def test_a_plain_function(given):
    res = ksdmin.minimize(rosen, np.full(5, 1.4), jac=rosen_der, method="hf", **given)
    assert res.success
    assert_allclose(res.x, 1, atol=1e-4)
    assert np.abs(rosen_der(res.x)).max() <= 1e-5
    assert (np.diff(res.history["value"]) <= 0).all()


@pytest.mark.parametrize("damping", [45.0, 0.01])
def test_an_indefinite_start(damping):
    """With little damping the first product meets negative curvature."""
    res = ksdmin.minimize(
        lambda x: np.sum((x**2 - 1) ** 2),
        np.array([0.1, -0.2, 0.3]),
        jac=lambda x: 4 * x * (x**2 - 1),
        hessp=lambda x, p: (12 * x**2 - 4) * p,
        method="hf",
        options={"damping": damping},
    )
    assert res.success
    assert_allclose(np.abs(res.x), 1, atol=1e-4)


def of_a_sum(curvature, gradient=1.0, **options):
    """The result, the best point, and the sets that gradients were asked for."""
    X, y = rng.standard_normal((400, 5)), rng.standard_normal(400)
    loss, asked = squares(X, y), []

    def jac(w, idx):
        asked.append(idx)
        return loss["jac"](w, idx)

    res = ksdmin.minimize(
        **{**loss, "jac": jac},
        x0=np.zeros(5),
        subsets=ksdmin.Subsets(400, gradient=gradient, curvature=curvature),
        rng=0,
        method="hf",
        options={"damping": 0.1, **options},
    )
    return res, np.linalg.lstsq(X, y)[0], asked


def test_a_sum_of_losses():
    res, expected, _ = of_a_sum(curvature=50, maxiter=100, gtol=1e-4)
    assert set(res.history["size_B"]) == {50}
    assert res.success
    assert_allclose(res.x, expected, atol=1e-3)


def test_a_partial_gradient_set_is_drawn_anew():
    """HF lets no set grow: one that it kept would be all that it ever saw."""
    *_, drawn = of_a_sum(gradient=100, curvature=50, maxiter=6)
    partial = {tuple(idx) for idx in drawn if not isinstance(idx, slice) and len(idx) == 100}
    assert len(partial) >= 6


@pytest.mark.parametrize(("method", "first"), [("hf", 100_000), ("ksd", 7900)])
def test_of_very_many_samples_it_takes_all(method, first):
    """KSD begins with a part where the model is not linear, but HF's sets do not grow."""
    y = rng.standard_normal(100_000)
    problem = ksdmin.as_problem(
        lambda w, idx: np.mean((w[0] - y[idx]) ** 2) / 2,
        jac=lambda w, idx: np.mean(w[0] - y[idx], keepdims=True),
        hessp=lambda w, p, idx: p,
        subsets=len(y),
        nonlinear=True,
    )
    res = ksdmin.minimize(problem, np.ones(1), rng=0, method=method, options={"gtol": 1e-8})
    assert res.history["size_A"][0] == first
    assert res.history["size_A"][-1] == len(y)
    assert res.success
    assert_allclose(res.x, y.mean(), atol=1e-7)


def of_a_quadratic(**options):
    return ksdmin.minimize(
        lambda x: x @ H @ x / 2 - b @ x,
        np.zeros(12),
        jac=lambda x: H @ x - b,
        hessp=lambda x, p: H @ p,
        method="hf",
        options=options,
    )


def test_the_damping_follows_the_model():
    """On a quadratic the model is exact: lambda falls by a third an iteration, and HF converges."""
    res = of_a_quadratic(gtol=1e-8)
    assert res.success
    assert res.nit <= 10 + math.log(45 / 0.01) / math.log(1.5)


def test_few_conjugate_gradients_at_a_time():
    res = of_a_quadratic(inner_maxiter=3)
    assert res.success
    assert_allclose(res.x, np.linalg.solve(H, b), rtol=1e-3)


def test_a_torch_model():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net, inputs = tanh_net(3, 5, 1).double(), torch.randn(200, 3, dtype=torch.float64)
    problem = ksdmin.from_torch(net, torch.nn.MSELoss(), (inputs, inputs.sum(1, keepdim=True)))
    res = ksdmin.minimize(problem, method="hf", rng=0, options={"maxiter": 8, "damping": 1.0})
    assert res.fun < 0.5 * res.history["value"][0]
    assert res.preconditioner == "kronecker"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        *(({name: 1}, rf"{name}\. Leave") for name in ("krylov_dim", "pairs", "preset", "without")),
        (ksdmin.PAPER, "preset, krylov_dim, memory, pairs, floor"),
    ],
)
def test_options_without_effect_are_refused(options, told):
    with pytest.raises(ValueError, match=f"without effect on method 'hf': {told}"):
        ksdmin.minimize(rosen, [0.0, 0.0], jac=rosen_der, method="hf", options=options)


def test_bounds_are_refused():
    with pytest.raises(ValueError, match="'hf' cannot handle bounds; 'ksd' can"):
        ksdmin.minimize(rosen, [0.0, 0.0], jac=rosen_der, bounds=Bounds(0, 1), method="hf")
