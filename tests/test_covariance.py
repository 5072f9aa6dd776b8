"""Standard errors, against closed forms."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import OptimizeWarning
from scipy.special import expit

import ksdmin

RNG = np.random.default_rng(0)
X = np.c_[np.ones(800), RNG.standard_normal((800, 4)) * [1, 10, 0.1, 1]]
TRUE = np.array([0.3, -0.4, 0.05, 2.0, 0.1])
N, n = X.shape
# Where the numbers are compared at a point that is not the minimum.
elsewhere = pytest.mark.filterwarnings("ignore:x is no minimum")


class Logistic:
    y = RNG.random(N) < expit(X @ TRUE)

    def fun(self, b):
        return float((np.logaddexp(0, X @ b) - self.y * (X @ b)).sum())

    def jac(self, b):
        return X.T @ (expit(X @ b) - self.y)

    def hess(self, b):
        p = expit(X @ b)
        return X.T @ ((p * (1 - p))[:, None] * X)


class Poisson:
    y = RNG.poisson(np.exp(X @ TRUE))

    def fun(self, b):
        return float((np.exp(X @ b) - self.y * (X @ b)).sum())

    def jac(self, b):
        return X.T @ (np.exp(X @ b) - self.y)

    def hess(self, b):
        return X.T @ (np.exp(X @ b)[:, None] * X)


def standard_errors(*args, **kwargs):
    return np.sqrt(np.diag(ksdmin.covariance(*args, **kwargs)))


@pytest.mark.parametrize("given", [(), ("jac",), ("jac", "hess")])
@pytest.mark.parametrize("model", [Logistic(), Poisson()])
def test_likelihoods(model, given):
    problem = ksdmin.as_problem(model.fun, **{name: getattr(model, name) for name in given})
    res = ksdmin.minimize(problem, np.zeros(n))
    assert res.success
    expected = np.sqrt(np.diag(np.linalg.inv(model.hess(res.x))))
    assert_allclose(standard_errors(problem, res.x), expected, rtol=1e-6 if given else 1e-4)


def test_linear_regression():
    y = X @ TRUE + RNG.standard_normal(N) * 3
    problem = ksdmin.as_problem(
        lambda b: (y - X @ b) @ (y - X @ b) / 2,
        jac=lambda b: X.T @ (X @ b - y),
        hessp=lambda b, v: X.T @ (X @ v),
    )
    res = ksdmin.minimize(problem, np.zeros(n))
    r = y - X @ res.x
    variance = r @ r / (N - n)
    expected = variance * np.linalg.inv(X.T @ X)
    assert_allclose(ksdmin.covariance(problem, res.x, scale=variance), expected, rtol=1e-8)


@elsewhere
def test_a_mean_over_samples_is_divided_by_their_number():
    model = Poisson()
    mean = ksdmin.as_problem(
        lambda b, idx: float((np.exp(X[idx] @ b) - model.y[idx] * (X[idx] @ b)).mean()),
        jac=lambda b, idx: X[idx].T @ (np.exp(X[idx] @ b) - model.y[idx]) / len(X[idx]),
        subsets=N,
    )
    at = TRUE
    expected = np.linalg.inv(model.hess(at))
    assert_allclose(ksdmin.covariance(mean, at), expected, rtol=1e-6, atol=1e-12)
    assert_allclose(ksdmin.covariance(mean, at, scale=1), N * expected, rtol=1e-6, atol=1e-9)


@elsewhere
def test_columns_are_those_of_the_whole():
    model = Poisson()
    problem = ksdmin.as_problem(model.fun, jac=model.jac, hess=model.hess)
    whole = ksdmin.covariance(problem, TRUE)
    some = ksdmin.covariance(problem, TRUE, columns=[3, -1])
    assert_allclose(some, whole[:, [3, 4]], rtol=1e-7, atol=1e-10)


def test_many_unknowns_go_by_columns():
    d = np.linspace(1, 2, 3000)
    problem = ksdmin.as_problem(
        lambda x: d * x @ x / 2, jac=lambda x: d * x, hessp=lambda x, v: d * v
    )
    with pytest.raises(ValueError, match="pass columns="):
        ksdmin.covariance(problem, np.zeros(3000))
    column = ksdmin.covariance(problem, np.zeros(3000), columns=[7])
    assert column.shape == (3000, 1)
    assert_allclose(column[7, 0], 1 / d[7], rtol=1e-9)


def test_torch_problems_return_numpy():
    torch = pytest.importorskip("torch")
    inputs = torch.as_tensor(X[:, 1:] / [1, 10, 0.1, 1])
    targets = torch.as_tensor(Logistic.y).double()[:, None]
    model = torch.nn.Linear(4, 1, dtype=torch.float64)
    problem = ksdmin.from_torch(model, torch.nn.BCEWithLogitsLoss(), (inputs, targets))
    res = ksdmin.minimize(problem, rng=0, options={"gtol": 1e-8})
    Z = np.c_[inputs.numpy(), np.ones(N)]
    p = expit(Z @ res.x.numpy())
    expected = np.linalg.inv(Z.T @ ((p * (1 - p))[:, None] * Z))
    for x in (res.x, res.x.numpy()):
        found = ksdmin.covariance(problem, x)
        assert isinstance(found, np.ndarray)
        assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("columns", [None, [1], [0, -1]])
def test_a_bound_that_is_active_is_told(columns):
    model = Poisson()
    problem = ksdmin.as_problem(model.fun, jac=model.jac, hess=model.hess)
    free = ksdmin.minimize(problem, np.zeros(n))
    ksdmin.covariance(problem, free.x, columns=columns)  # no warning
    bounds = [(None, None)] * (n - 1) + [(free.x[-1] + 0.1, None)]
    start = np.append(np.zeros(n - 1), free.x[-1] + 0.2)
    held = ksdmin.minimize(problem, start, bounds=bounds)
    with pytest.warns(OptimizeWarning, match="At a bound that is active") as told:
        ksdmin.covariance(problem, held.x, columns=columns)
    assert told[0].filename == __file__


def test_a_mean_asks_for_its_scale():
    model, mean = Poisson(), ksdmin.as_problem(lambda b: model.fun(b) / N)
    problem = ksdmin.as_problem(model.fun, jac=model.jac, hess=model.hess)
    x = ksdmin.minimize(problem, np.zeros(n)).x
    found = ksdmin.covariance(mean, x, scale=1 / N)
    assert_allclose(np.diag(found), np.diag(ksdmin.covariance(problem, x)), rtol=1e-3)


def test_errors_name_the_cause():
    saddle = ksdmin.as_problem(
        lambda x: x[0] ** 2 - x[1] ** 2, jac=lambda x: np.array([2 * x[0], -2 * x[1]])
    )
    with pytest.raises(ValueError, match=r"smallest eigenvalue is -2\.00e\+00"):
        ksdmin.covariance(saddle, np.zeros(2))
    with pytest.raises(ValueError, match="not positive definite"):
        ksdmin.covariance(saddle, np.zeros(2), columns=[1])
    flat = ksdmin.as_problem(lambda x: (x[0] + x[1]) ** 2)
    with pytest.raises(ValueError, match="not all determined by the data"):
        ksdmin.covariance(flat, np.zeros(2))
    with pytest.raises(ValueError, match="scale=-1"):
        ksdmin.covariance(flat, np.zeros(2), scale=-1)
    with pytest.raises(IndexError, match="from 0 to 1"):
        ksdmin.covariance(flat, np.zeros(2), columns=[2])
    with pytest.raises(TypeError, match="indices of columns"):
        ksdmin.covariance(flat, np.zeros(2), columns=[0.5])
    own = ksdmin.as_problem(
        lambda x, idx: x @ x, subsets=ksdmin.Subsets([("a", "b", "c")], full="a")
    )
    with pytest.raises(ValueError, match="pass scale=1 / n"):
        ksdmin.covariance(own, np.zeros(2))


# The rough one of a run


def test_hess_inv_of_a_quadratic_is_its_inverse():
    d = np.array([1.0, 4.0, 9.0])
    res = ksdmin.minimize(lambda x: d * x @ x / 2 + x.sum(), np.ones(3), jac=lambda x: d * x + 1)
    assert_allclose(res.hess_inv.todense(), np.diag(1 / d), atol=1e-6)
    assert_allclose(res.hess_inv @ np.ones(3), 1 / d, atol=1e-6)
    assert res.hess_inv.shape == (3, 3)
    assert res.hess_inv.n_corrs >= 1


def test_hess_inv_is_positive_definite_and_symmetric():
    model = Poisson()
    res = ksdmin.minimize(model.fun, np.zeros(n), jac=model.jac)
    P = res.hess_inv.todense()
    assert_allclose(P, P.T, rtol=1e-8, atol=1e-12)
    assert np.linalg.eigvalsh(P).min() > 0


def test_hess_inv_is_left_out_where_nothing_was_learned():
    assert "hess_inv" not in ksdmin.minimize(lambda x: x @ x, [1.0], options={"maxiter": 0})
    assert "hess_inv" not in ksdmin.minimize(
        lambda x: x @ x, [1.0], method="hf", jac=lambda x: 2 * x
    )


@elsewhere
def test_what_is_no_likelihood_of_n_samples_asks_for_a_scale():
    torch = pytest.importorskip("torch")
    X, y = torch.randn(30, 2, dtype=torch.float64), torch.randint(0, 2, (30, 1)).double()
    weighted = ksdmin.from_torch(
        torch.nn.Linear(2, 1).double(),
        torch.nn.BCEWithLogitsLoss(),
        (X, y),
        sample_weight=np.arange(30.0),
    )
    blocks = ksdmin.from_torch(
        torch.nn.Linear(2, 1).double(), residuals=[(lambda net, b: net(b[0]) - b[1], (X, y))]
    )
    for problem, why in ((weighted, "samples have weights"), (blocks, "no likelihood")):
        with pytest.raises(ValueError, match=why):
            ksdmin.covariance(problem, problem.x0)
        assert ksdmin.covariance(problem, problem.x0, scale=0.5).shape == (3, 3)
    with pytest.raises(TypeError, match="expected a problem, not a function"):
        ksdmin.covariance(lambda x: x @ x, np.zeros(2))


def test_columns_of_a_matrix_that_is_not_positive_definite():
    H = np.array([[1.0, 0.5, 0.0], [0.5, -1.0, 0.2], [0.0, 0.2, 1.0]])
    problem = ksdmin.as_problem(lambda x: x @ H @ x / 2, jac=lambda x: H @ x, hess=lambda x: H)
    with pytest.raises(ValueError, match="not positive definite"):
        ksdmin.covariance(problem, np.zeros(3), columns=[0])
