"""Small runs of every kind, each made anew at every call: for what must hold of all of them."""

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess, rosen_hess_prod
from scipy.sparse import csr_array

import ksdmin
from tests.linear_models import logistic
from tests.nets import tanh_net

X0 = np.array([-1.2, 1.0, 0.7, 1.3])
M = 240


def plain(**kwargs):
    return {"fun": ksdmin.as_problem(rosen, **kwargs), "x0": X0}


def rosenbrock():
    return plain(jac=rosen_der, hessp=rosen_hess_prod)


def hessian_free():
    return {**rosenbrock(), "method": "hf"}


def differences():
    """Which become finer on the way."""
    return {**plain(), "options": {"gtol": 1e-7, "maxiter": 60}}


def dense_hessian():
    return plain(jac=rosen_der, hess=rosen_hess)


def sparse_hessian():
    def hess(x):
        return csr_array(rosen_hess(x))

    many = {"fun": ksdmin.as_problem(rosen, jac=rosen_der, hess=hess)}
    return {**many, "x0": np.resize(X0, 120), "options": {"maxiter": 25}}


def bounds():
    return {**plain(jac=rosen_der), "x0": np.minimum(X0, 0.4), "bounds": [(-2, 0.5)] * 4}


def residuals():
    def r(x):
        return np.append(10 * (x[1:] - x[:-1] ** 2), 1 - x[:-1])

    return {"fun": ksdmin.as_problem(residuals=r), "x0": X0}


def a_sum(subsets, **kwargs):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((M, 4)), rng.integers(0, 2, M) * 2.0 - 1
    loss = logistic(X, y, l2=2e-3)
    problem = ksdmin.as_problem(loss["fun"], jac=loss["jac"], subsets=subsets)
    return {"fun": problem, "x0": np.zeros(4), "rng": 5, "options": {"maxiter": 9}, **kwargs}


def samples():
    return a_sum(ksdmin.Subsets(M, gradient=100, curvature=20, search=20))


def samples_hessian_free():
    return a_sum(ksdmin.Subsets(M, gradient=100, curvature=20), method="hf")


def an_iterable_of_sets():
    rng = np.random.default_rng(1)
    A, B, C = (rng.choice(M, (9, size)) for size in (90, 30, 30))
    return a_sum(ksdmin.Subsets(list(zip(A, B, C, strict=True)), full=slice(None)))


def all_iterates():
    return {**rosenbrock(), "options": {"return_all": True}}


def tensors():
    torch = pytest.importorskip("torch")
    fun = ksdmin.from_torch(
        lambda x: (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum(),
        x0=torch.as_tensor(X0),
    )
    return {"fun": fun}


def net(**kwargs):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X = torch.as_tensor(rng.standard_normal((300, 3)), dtype=torch.float32)
    y = (X[:, 0] * X[:, 1] > 0).long()
    model = tanh_net(3, 5, 2)
    problem = ksdmin.from_torch(model, torch.nn.CrossEntropyLoss(), (X, y), l2=1e-3)
    return {"fun": problem, "rng": 0, "options": {"maxiter": 7}, **kwargs}


def from_single_to_double():
    """Rounding hides the gain of its steps on the way, and it moves."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X = torch.as_tensor(rng.standard_normal((60, 2)), dtype=torch.float32)
    model = tanh_net(2, 1)
    y = torch.sin(X[:, :1]) + X[:, 1:]
    problem = ksdmin.from_torch(model, lambda z, y: (z - y).cosh().mean(1), (X, y), l2=1e-2)
    options = {"gtol": 1e-10, "return_all": True, "average": 0.7}
    return {"fun": problem, "rng": 0, "options": options}


def net_hessian_free():
    return net(method="hf")


def epochs():
    """Other samples in every iteration."""
    torch = pytest.importorskip("torch")

    def data(epoch):
        X = torch.as_tensor(np.random.default_rng(epoch).standard_normal((80, 2)))
        return X, X[:, :1] * X[:, 1:]

    model = tanh_net(2, 4, 1)
    problem = ksdmin.from_torch(model.double(), torch.nn.MSELoss(), data)
    return {"fun": problem, "rng": 0, "options": {"maxiter": 8}}


def blocks_of_epochs():
    """Points of one block that are drawn anew every third iteration, and a block that stays."""
    torch = pytest.importorskip("torch")

    def points(epoch):
        return torch.as_tensor(np.random.default_rng(epoch // 3).random((40, 2)))

    model = tanh_net(2, 4, 1)
    blocks = [
        (lambda net, x: net(x) - x[:, :1] * x[:, 1:], points),
        (lambda net, x: net(x), torch.zeros(1, 2, dtype=torch.float64)),
    ]
    problem = ksdmin.from_torch(model.double(), residuals=blocks)
    return {"fun": problem, "rng": 0, "options": {"maxiter": 8}}


def jax_function():
    jax = pytest.importorskip("jax")
    return {
        "fun": ksdmin.as_problem(
            lambda x: ((x**2 - 1) ** 2).sum() + x[0] * x[1],
            jac=lambda x: (4 * x * (x**2 - 1)).at[0].add(x[1]).at[1].add(x[0]),
        ),
        "x0": jax.numpy.asarray([0.5, -0.3, 2.0], dtype="float32"),
        "options": {"gtol": 1e-3, "return_all": True},
    }


def autograd_sum():
    pytest.importorskip("autograd")
    import autograd.numpy as anp

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    problem = ksdmin.from_autograd(
        lambda w, X: anp.tanh(X @ w[:3]) * w[3], "squared-error", (X, y), params=np.full(4, 0.1)
    )
    return {"fun": problem, "rng": 2, "options": {"maxiter": 6}}


ALL = {
    run.__name__: run
    for run in (
        rosenbrock, hessian_free, differences, dense_hessian, sparse_hessian, bounds, residuals,
        samples, samples_hessian_free, an_iterable_of_sets, all_iterates, tensors, net,
        from_single_to_double, net_hessian_free, epochs, blocks_of_epochs, jax_function,
        autograd_sum,
    )
}  # fmt: skip
