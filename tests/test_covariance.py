"""Standard errors, against closed forms."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import OptimizeWarning, curve_fit, minimize
from scipy.special import expit

import ksdmin
from tests.likelihoods import Logistic, Poisson
from tests.noted import noted

RNG = np.random.default_rng(0)
X = np.c_[np.ones(800), RNG.standard_normal((800, 4)) * [1, 10, 0.1, 1]]
TRUE = np.array([0.3, -0.4, 0.05, 2.0, 0.1])
N, n = X.shape
# Where the numbers are compared at a point that is not the minimum.
elsewhere = pytest.mark.filterwarnings("ignore:x is not a minimum")


LOGISTIC = Logistic(X, RNG.random(N) < expit(X @ TRUE))
POISSON = Poisson(X, RNG.poisson(np.exp(X @ TRUE)))


def free_and_held(fun, **given):
    """Two results: without bounds, and where the last variable is held above; and its bounds."""
    free = ksdmin.minimize(fun, np.zeros(n), **given)
    low = free.x[-1] + 0.1
    bounds = [(None, None)] * (n - 1) + [(low, None)]
    start = np.append(np.zeros(n - 1), low + 0.1)
    return free, ksdmin.minimize(fun, start, bounds=bounds, **given), bounds


def standard_errors(*args, **kwargs):
    return np.sqrt(np.diag(ksdmin.covariance(*args, **kwargs)))


@pytest.mark.parametrize("given", [(), ("jac",), ("jac", "hess")])
@pytest.mark.parametrize("model", [LOGISTIC, POISSON])
def test_likelihoods(model, given):
    problem = ksdmin.as_problem(model.fun, **{name: getattr(model, name) for name in given})
    res = ksdmin.minimize(problem, np.zeros(n))
    assert res.success
    expected = np.sqrt(np.diag(np.linalg.inv(model.hess(res.x))))
    assert_allclose(standard_errors(problem, res.x), expected, rtol=1e-6 if given else 1e-4)


@elsewhere
def test_a_mean_over_samples_is_divided_by_their_number():
    model = POISSON
    mean = ksdmin.as_problem(
        lambda b, idx: float((np.exp(X[idx] @ b) - model.y[idx] * (X[idx] @ b)).mean()),
        jac=lambda b, idx: X[idx].T @ (np.exp(X[idx] @ b) - model.y[idx]) / len(X[idx]),
        subsets=N,
    )
    at = TRUE
    expected = np.linalg.inv(model.hess(at))
    assert_allclose(ksdmin.covariance(mean, at), expected, rtol=1e-6, atol=1e-12)
    assert_allclose(ksdmin.covariance(mean, at, scale=1), N * expected, rtol=1e-6, atol=1e-9)


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
    targets = torch.as_tensor(LOGISTIC.y).double()[:, None]
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
    problem = ksdmin.as_problem(POISSON.fun, jac=POISSON.jac, hess=POISSON.hess)
    free, held, _ = free_and_held(problem)
    ksdmin.covariance(problem, free.x, columns=columns)  # no warning
    with pytest.warns(OptimizeWarning, match="At a bound that is active") as told:
        ksdmin.covariance(problem, held.x, columns=columns)
    assert told[0].filename == __file__


SADDLE = ksdmin.as_problem(
    lambda x: x[0] ** 2 - x[1] ** 2, jac=lambda x: np.array([2 * x[0], -2 * x[1]])
)
FLAT = ksdmin.as_problem(lambda x: (x[0] + x[1]) ** 2)
OWN_SETS = ksdmin.as_problem(
    lambda x, idx: x @ x, subsets=ksdmin.Subsets([("a", "b", "c")], full="a")
)


@pytest.mark.parametrize(
    ("problem", "given", "error", "told"),
    [
        (SADDLE, {}, ValueError, r"smallest eigenvalue is -2\.00e\+00"),
        (SADDLE, {"columns": [1]}, ValueError, "not positive definite"),
        (FLAT, {}, ValueError, "not all determined by the data"),
        (FLAT, {"scale": -1}, ValueError, "scale=-1"),
        (FLAT, {"columns": [2]}, IndexError, "from 0 to 1"),
        (FLAT, {"columns": [0.5]}, TypeError, "indices of columns"),
        (OWN_SETS, {}, ValueError, "pass scale=1 / n"),
    ],
)
def test_errors_name_the_cause(problem, given, error, told):
    with pytest.raises(error, match=told):
        ksdmin.covariance(problem, np.zeros(2), **given)


# The rough one of a run


def test_hess_inv_of_a_quadratic_is_its_inverse():
    d = np.array([1.0, 4.0, 9.0])
    res = ksdmin.minimize(lambda x: d * x @ x / 2 + x.sum(), np.ones(3), jac=lambda x: d * x + 1)
    assert_allclose(res.hess_inv.todense(), np.diag(1 / d), atol=1e-6)
    assert_allclose(res.hess_inv @ np.ones(3), 1 / d, atol=1e-6)
    assert res.hess_inv.shape == (3, 3)
    assert res.hess_inv.n_corrs >= 1
    assert "rough" in repr(res.hess_inv)
    assert "ksdmin.covariance(res)" in repr(res.hess_inv)
    assert "hess_inv (3 x 3, rough)" in repr(res)


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
    for problem, why in ((weighted, "samples have weights"), (blocks, "not a likelihood")):
        with pytest.raises(ValueError, match=why):
            ksdmin.covariance(problem, problem.x0)
        assert ksdmin.covariance(problem, problem.x0, scale=0.5).shape == (3, 3)
    with pytest.raises(TypeError, match="expected a result, a problem or a function, not a list"):
        ksdmin.covariance([1.0, 2.0], np.zeros(2))


# Of a result


def test_a_result_knows_its_problem(tmp_path):
    model, path = POISSON, tmp_path / "run.ksd"
    problem = ksdmin.as_problem(model.fun, jac=model.jac)
    res = ksdmin.minimize(model.fun, np.zeros(n), jac=model.jac)
    solver = ksdmin.Solver(problem, np.zeros(n))
    for _ in solver:
        pass
    ksdmin.minimize(problem, np.zeros(n), options={"checkpoint": path, "maxiter": 2})
    resumed = ksdmin.resume(path, problem, options={"maxiter": 100})
    expected = np.linalg.inv(model.hess(res.x))
    for each in (res, copy.copy(res), solver.result(), resumed):
        assert_allclose(ksdmin.covariance(each), expected, rtol=1e-6, atol=1e-12)
    assert_allclose(ksdmin.covariance(res, columns=[2]), expected[:, [2]], rtol=1e-6)


def scaled_likelihood(b, factor):
    return factor * POISSON.fun(b)


def test_args_of_a_result():
    res = ksdmin.minimize(scaled_likelihood, np.zeros(n), args=(2.0,), tol=1e-2)
    assert_allclose(
        standard_errors(res), np.sqrt(np.diag(np.linalg.inv(2 * POISSON.hess(res.x)))), rtol=1e-5
    )


def test_a_result_is_pickled_without_its_problem():
    big = np.zeros(10**6)
    res = ksdmin.minimize(lambda x: x @ x + big[0], [1.0, 2.0])
    assert len(pickle.dumps(res)) < 10**5
    for again in (pickle.loads(pickle.dumps(res)), copy.deepcopy(res)):
        assert again.keys() == res.keys()
        with pytest.raises(ValueError, match=r"pickled or deep-copied.*covariance\(fun, res\.x"):
            ksdmin.covariance(again)
    with pytest.raises(ValueError, match="it is SciPy's"):
        ksdmin.covariance(minimize(lambda x: x @ x, [1.0]))


def test_a_result_does_not_keep_a_problem_of_the_users_alive():
    torch = pytest.importorskip("torch")
    data = torch.randn(30, 2, dtype=torch.float64), torch.randint(0, 2, (30, 1)).double()
    problem = ksdmin.from_torch(
        torch.nn.Linear(2, 1).double(), torch.nn.BCEWithLogitsLoss(), data, l2=0.1
    )
    res, gone = ksdmin.minimize(problem, rng=0), weakref.ref(problem)
    assert_allclose(ksdmin.covariance(res), ksdmin.covariance(problem, res.x))
    del problem
    gc.collect()
    assert gone() is None
    with pytest.raises(ValueError, match="does not exist any more"):
        ksdmin.covariance(res)


def test_torch_functions_of_a_result():
    torch = pytest.importorskip("torch")
    A = torch.diag(torch.tensor([1.0, 4.0], dtype=torch.float64))
    res = ksdmin.minimize(lambda x: x @ A @ x / 2, torch.ones(2, dtype=torch.float64))
    assert_allclose(ksdmin.covariance(res), np.diag([1, 0.25]))
    found = ksdmin.covariance(lambda x: x @ A @ x / 2, torch.zeros(2, dtype=torch.float64))
    assert_allclose(found, np.diag([1, 0.25]), rtol=1e-12)


def test_wrong_calls():
    res = ksdmin.minimize(lambda x: x @ x, [1.0, 2.0])
    with pytest.raises(TypeError, match="beside a result"):
        ksdmin.covariance(res, res.x)
    with pytest.raises(TypeError, match="x is missing"):
        ksdmin.covariance(lambda x: x @ x)
    res.x = np.zeros(3)
    with pytest.raises(ValueError, match="the result has 3 unknowns, and its run had 2"):
        ksdmin.covariance(res)


# From values alone


def newton(model, x):
    for _ in range(30):
        x = x - np.linalg.solve(model.hess(x), model.jac(x))
    return x


def wide(n):
    """A logistic regression whose unknowns differ by eight orders of magnitude."""
    rng = np.random.default_rng(n)
    X = np.c_[np.ones(2000), rng.standard_normal((2000, n - 1))]
    b = rng.standard_normal(n) / np.sqrt(n)
    y = rng.random(2000) < expit(X @ b)
    X[:, 1:] *= np.logspace(-4, 4, n - 1)
    return Logistic(X, y)


@pytest.mark.parametrize("size", [10, 30])
@pytest.mark.parametrize("shift", [0, 1e5])
def test_second_differences_of_values(size, shift):
    model = wide(size)
    x = newton(model, np.zeros(size))
    fun, calls = noted(lambda b: model.fun(b) + shift)
    found = ksdmin.covariance(fun, x)
    errors = np.sqrt(np.diag(np.linalg.inv(model.hess(x))))
    assert_allclose(np.sqrt(np.diag(found)), errors, rtol=1e-4 if shift else 1e-6)
    assert len(calls) <= 2 * size**2
    assert_allclose(ksdmin.covariance(fun, x, columns=[3]), found[:, [3]])


@pytest.mark.parametrize("noise", [1e-12, 1e-9, 1e-6])
def test_noisy_values(noise):
    """As of a likelihood that an integrator computes to so many digits."""
    model, rng = wide(10), np.random.default_rng(0)
    x = newton(model, np.zeros(10))
    noisy = lambda b: model.fun(b) * (1 + noise * rng.standard_normal())  # noqa: E731
    errors = np.sqrt(np.diag(np.linalg.inv(model.hess(x))))
    assert_allclose(standard_errors(noisy, x), errors, rtol=10 * noise**0.5)


@pytest.mark.parametrize(("centre", "spread"), [(1e5, 1e-2), (3e-7, 2e-8), (0.0, 1.0)])
def test_a_normal_sample_in_its_own_units(centre, spread):
    y = np.random.default_rng(0).normal(centre, spread, 300)
    mean, sigma = y.mean(), y.std()
    fun = lambda t: np.sum(((y - t[0]) / t[1]) ** 2 / 2 + np.log(t[1]))  # noqa: E731
    expected = np.diag([sigma**2 / 300, sigma**2 / 600])
    found = ksdmin.covariance(fun, [mean, sigma])
    assert_allclose(np.diag(found), np.diag(expected), rtol=1e-4)
    assert abs(found[0, 1]) < 1e-4 * np.sqrt(expected[0, 0] * expected[1, 1])


def test_progress_is_shown(capsys):
    pytest.importorskip("tqdm")
    res = ksdmin.minimize(lambda x: x @ x + 1, np.ones(12))
    ksdmin.covariance(res, progress=True)
    assert "covariance: 100%" in capsys.readouterr().err
    ksdmin.covariance(res)
    assert not capsys.readouterr().err


def test_ctrl_c_ends_it():
    calls = []

    def fun(x):
        calls.append(1)
        if len(calls) == 50:
            raise KeyboardInterrupt
        return x @ x + 1

    with pytest.raises(KeyboardInterrupt):
        ksdmin.covariance(fun, np.zeros(10))
    assert len(calls) == 50


# Bounds


@pytest.mark.parametrize("given", [(), ("jac",), ("jac", "hess")])
def test_a_variable_that_a_bound_holds_is_not_known(given):
    model = POISSON
    kwargs = {name: getattr(model, name) for name in given}
    inside, asked = noted(model.fun)
    _, res, bounds = free_and_held(inside, **kwargs)
    asked.clear()
    found = ksdmin.covariance(res)
    assert np.isnan(found[-1]).all()
    assert np.isnan(found[:, -1]).all()
    expected = np.linalg.inv(model.hess(res.x)[:-1, :-1])
    assert_allclose(found[:-1, :-1], expected, rtol=1e-4, atol=1e-9)
    assert_allclose(ksdmin.covariance(res, columns=[0, -1]), found[:, [0, -1]], rtol=1e-6)
    assert_allclose(ksdmin.covariance(model.fun, res.x, bounds=bounds, **kwargs), found, rtol=1e-3)
    assert min(b[-1] for b in asked) >= bounds[-1][0]


def test_a_variable_whose_bounds_are_equal_is_a_constant():
    H = np.array([[2.0, 1.0], [1.0, 3.0]])
    res = ksdmin.minimize(
        lambda x: x @ H @ x / 2 + 1, [1.0, 1.0], jac=lambda x: H @ x, bounds=[(None, None), (1, 1)]
    )
    assert_allclose(ksdmin.covariance(res), [[0.5, 0.0], [0.0, 0.0]], rtol=1e-6)
    both = ksdmin.minimize(lambda x: x @ x, [1.0], bounds=[(1, 1)])
    assert_allclose(ksdmin.covariance(both), [[0.0]])


def test_a_bound_in_the_way_of_differences():
    """The minimum lies on the bound, and would without it."""
    fun, seen = noted(lambda x: np.exp(x[0]) - x[0] + x[1] ** 2 + 3)
    found = ksdmin.covariance(fun, [0.0, 0.0], bounds=[(0, None), (None, None)])
    assert min(x[0] for x in seen) >= 0
    assert_allclose(np.diag(found), [1.0, 0.5], rtol=1e-3)
    with pytest.raises(ValueError, match="outside the bounds"):
        ksdmin.covariance(fun, [-1.0, 0.0], bounds=[(0, None), (None, None)])


# Least squares


@pytest.mark.parametrize("jac", [False, True])
def test_the_residual_variance_is_that_of_curve_fit(jac):
    rng, t = np.random.default_rng(0), np.linspace(0, 4, 40)
    model = lambda t, a, k: a * np.exp(-k * t)  # noqa: E731
    y = model(t, 2.5, 1.3) + 0.1 * rng.standard_normal(40)
    slopes = lambda b: np.stack([np.exp(-b[1] * t), -b[0] * t * np.exp(-b[1] * t)], 1)  # noqa: E731
    jac = slopes if jac else None
    problem = ksdmin.as_problem(residuals=lambda b: model(t, *b) - y, jac=jac)
    res = ksdmin.minimize(problem, [1.0, 1.0], tol=1e-9)
    x, expected = curve_fit(model, t, y, [1.0, 1.0], ftol=1e-14, xtol=1e-14)
    assert_allclose(res.x, x, rtol=1e-6)
    assert_allclose(ksdmin.covariance(res), expected, rtol=1e-4)
    absolute = curve_fit(model, t, y, x, sigma=np.full(40, 1.0), absolute_sigma=True)[1]
    assert_allclose(ksdmin.covariance(res, scale=1), absolute, rtol=1e-4)
    mean = ksdmin.as_problem(
        residuals=lambda b, idx: (model(t, *b) - y)[idx],
        jac=None if jac is None else lambda b, idx: slopes(b)[idx],
        subsets=40,
    )
    assert_allclose(ksdmin.covariance(mean, res.x), expected, rtol=1e-4)


def test_a_held_variable_is_no_lost_degree_of_freedom():
    rng, t = np.random.default_rng(0), np.linspace(0, 4, 30)
    y = 2 + 0.5 * t + 0.1 * rng.standard_normal(30)
    res = ksdmin.minimize(
        ksdmin.as_problem(residuals=lambda b: b[0] + b[1] * t - y),
        [0.0, 0.2],
        bounds=[(None, None), (0.2, 0.2)],
    )
    r = res.x[0] + 0.2 * t - y
    assert_allclose(ksdmin.covariance(res)[0, 0], r @ r / 29 / 30, rtol=1e-6)


def test_as_many_unknowns_as_residuals():
    problem = ksdmin.as_problem(residuals=lambda x: [10 * (x[1] - x[0] ** 2), 1 - x[0]])
    with pytest.raises(ValueError, match="2 residuals for 2 unknowns"):
        ksdmin.covariance(problem, [1.0, 1.0])
    assert ksdmin.covariance(problem, [1.0, 1.0], scale=1).shape == (2, 2)


@pytest.mark.parametrize(("sign", "helps"), [(0, True), (-1, False)])
def test_more_digits_are_advised_where_they_could_help(sign, helps):
    with pytest.raises(ValueError, match="not positive definite") as caught:
        ksdmin.covariance(lambda x: 1 + x[0] ** 2 + sign * x[1] ** 2, [0.0, 0.0])
    assert ("pass jac for more digits" in str(caught.value)) == helps
