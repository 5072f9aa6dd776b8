"""Torch problems in `minimize`, in SciPy's methods, and as numpy callables."""

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import nn

import ksdmin
from tests.adapters.torch.dense import dense, make


def spirals(dtype=torch.float64, n=200, **options):
    """Two interleaved spirals, a small net, and a convex enough penalty."""
    generator = torch.Generator().manual_seed(0)
    t = 3 * torch.rand(n, generator=generator, dtype=torch.float64) + 0.5
    sign = 2.0 * (torch.arange(n) % 2) - 1
    X = torch.stack([sign * t * torch.cos(2 * t), sign * t * torch.sin(2 * t)], 1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    data = X.to(dtype), (sign > 0).long()
    options = {"l2": 1e-3} | options
    return net, ksdmin.from_torch(net.to(dtype), nn.CrossEntropyLoss(), data, **options)


def test_bfloat16_in_finer_arithmetic():
    """On a CPU, where there is no TF32, it is float32 at once; the problem itself is unchanged."""
    (_, coarse), (_, exact) = (
        spirals(torch.float32, precision=precision) for precision in ("bfloat16", "highest")
    )
    x, finer = exact.x0, coarse.in_finer_arithmetic()
    assert finer.value(x) == exact.value(x) != coarse.value(x)
    assert torch.equal(finer.curvature(x)(x), exact.curvature(x)(x))
    assert not torch.equal(coarse.curvature(x)(x), exact.curvature(x)(x))
    finest = finer.in_finer_arithmetic()
    assert [p.traits.noise for p in (coarse, finer, finest)] == [1e-3, 1e-5, 1e-7]
    assert finest.in_finer_arithmetic().x0.dtype == torch.float64  # see test_in_double.py


@pytest.mark.parametrize("method", ["BFGS", "Newton-CG", ksdmin.ksd])
def test_numpy_callables(method):
    problem = make("curve", curvature="hessian", l2=0.1)
    hessp = {"hessp": problem.hessp} if method != "BFGS" else {}
    x0 = problem.x0.numpy()
    res = scipy.optimize.minimize(problem.fun, x0, jac=problem.jac, method=method, **hessp)
    assert isinstance(res.x, np.ndarray)
    assert np.abs(problem.jac(res.x)).max() < 1e-3
    assert res.fun == pytest.approx(problem.value(torch.as_tensor(res.x)), rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_in_numpy_out(dtype):
    problem, right = make("mlp", curvature="hessian"), dense("mlp", "whole")
    x = right.x.numpy().astype(dtype)
    x.flags.writeable = False
    g, product = problem.jac(x), problem.hessp(x, x)
    assert problem.fun(x) == pytest.approx(right.value, rel=1e-6)
    assert g.dtype == product.dtype == np.float64
    np.testing.assert_allclose(g, right.gradient, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(product, right.hessian @ right.x, rtol=1e-5, atol=1e-5)
