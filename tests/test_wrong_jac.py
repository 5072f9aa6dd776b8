"""A `jac` that contradicts `fun` at x0 is noticed; a right one never is, whatever fun is like."""

import numpy as np
import pytest
from scipy.optimize import minimize, rosen, rosen_der

import ksdmin
from tests.noted import noted

START = np.array([-1.2, 1.0, 0.5])
CONTRADICTED = "jac contradicts fun at x0"
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((400, 5)), RNG.random(400) < 0.5


def with_entry(i, factor):
    """Rosenbrock's gradient with one entry multiplied."""

    def jac(x):
        g = rosen_der(x)
        g[i] *= factor
        return g

    return jac


# Wrong ones


@pytest.mark.parametrize(
    ("jac", "told"),
    [
        (lambda x: -rosen_der(x), "fun rises along -jac"),
        (lambda x: 1e3 * rosen_der(x), "jac is 1e.03 times too large"),
        (lambda x: 0.7 * rosen_der(x), "1.4 times what jac says"),
        (with_entry(0, -1.0), "entry 0 of jac is 216, differences say -216"),
        (with_entry(1, 1.5), "At x0 entry 1 of jac is "),
        (with_entry(2, 0.0), "At x0 entry 2 of jac is -?0, differences say -100"),
    ],
)
@pytest.mark.parametrize("method", ["ksd", "hf"])
def test_it_is_noticed(jac, told, method):
    with pytest.warns(RuntimeWarning, match=f"{CONTRADICTED}: .*{told}"):
        ksdmin.minimize(rosen, START, jac=jac, method=method, options={"maxiter": 1})


def test_it_is_noticed_by_scipys_call():
    with pytest.warns(RuntimeWarning, match=CONTRADICTED) as caught:
        minimize(rosen, START, jac=lambda x: -rosen_der(x), method=ksdmin.ksd)
    assert caught[0].filename == __file__


def test_it_is_noticed_in_a_sum_of_losses():
    def fun(w, idx):
        return np.logaddexp(0, X[idx] @ w).mean() - (X[idx] @ w) @ Y[idx] / len(Y[idx])

    def jac(w, idx):  # the sum, not the mean
        return X[idx].T @ (1 / (1 + np.exp(-X[idx] @ w)) - Y[idx])

    with pytest.warns(RuntimeWarning, match=f"{CONTRADICTED}: jac is .* too large"):
        ksdmin.minimize(fun, np.ones(5), jac=jac, subsets=400, rng=0, options={"maxiter": 1})


@pytest.mark.parametrize(
    "given",
    [
        {"fun": lambda x: (rosen(x), -rosen_der(x)), "jac": True},
        {"x0": [2.0, 2, 2], "jac": lambda x: 3 * rosen_der(x), "bounds": [(-3, 2), (0, 5), (0, 5)]},
    ],
    ids=["fun gives both", "at a bound"],
)
def test_it_is_noticed_also(given):
    with pytest.warns(RuntimeWarning, match=CONTRADICTED):
        ksdmin.minimize(**{"fun": rosen, "x0": START} | given)


def test_many_unknowns_are_not_looked_at_one_by_one():
    fun, calls = noted(rosen)
    with pytest.warns(RuntimeWarning, match=CONTRADICTED):
        res = ksdmin.minimize(
            fun, np.linspace(-1, 1, 500), jac=lambda x: 2 * rosen_der(x), options={"maxiter": 0}
        )
    assert res.nfev == len(calls) <= 10


# Right ones: any warning is an error in the tests


def noisy(level, seed):
    """Of each value, another share is lost, always the same at the same point."""

    def fun(x):
        bits = int(np.abs(np.asarray(x, dtype=np.float64)).view(np.int64).sum() % 2**32)
        noise = np.random.default_rng([bits, seed]).standard_normal()
        return rosen(x) * (1 + level * noise)

    return fun


def start(seed):
    return np.random.default_rng(seed).uniform(-2, 2, 3)


def stays_silent(fun, x0, jac=rosen_der, **given):
    ksdmin.minimize(fun, x0, jac=jac, options={"maxiter": 0}, **given)


@pytest.mark.parametrize(
    "inexact",
    [
        *(lambda seed, level=level: noisy(level, seed) for level in 10.0 ** np.arange(-15, 0, 3)),
        *(lambda seed, n=n: lambda x: float(f"{rosen(x):.{n}e}") for n in range(3, 12)),
        lambda seed: lambda x: float(rosen(x.astype(np.float32))),
        lambda seed: lambda x: float(rosen(x.astype(np.float16))),
    ],
)
def test_noise_and_coarse_values_are_no_wrong_gradient(inexact):
    for seed in range(20):
        stays_silent(inexact(seed), start(seed))


@pytest.mark.parametrize("scale", [np.float32(1e-10), np.float32(1), np.float32(1e10)])
def test_float32_is_no_wrong_gradient(scale):
    for seed in range(20):
        x0 = start(seed).astype(np.float32)
        stays_silent(lambda x: scale * rosen(x), x0, lambda x: scale * rosen_der(x))


@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1.0, 1e8, 1e150])
@pytest.mark.parametrize("unit", [1e-8, 1e-3, 1.0, 1e8])
@pytest.mark.parametrize("constant", [0.0, 1.0, 1e12])
def test_scales_are_no_wrong_gradient(scale, unit, constant):
    for seed in range(3):
        stays_silent(
            lambda x: scale * (rosen(x / unit) + constant),
            unit * start(seed),
            lambda x: scale / unit * rosen_der(x / unit),
        )


@pytest.mark.parametrize("x0", [[0.0, 0.0], [1e-9, -1e-9], [1e-7, 3.0], [-1e-10, 1e-5]])
@pytest.mark.parametrize("at_zero", [-1.0, 0.0, 0.3, 1.0])
def test_a_kink_is_no_wrong_gradient(x0, at_zero):
    def jac(x):  # a subgradient
        return np.where(x == 0, at_zero, np.sign(x))

    stays_silent(lambda x: np.abs(x).sum(), x0, jac)
    positive = max(at_zero, 0.0)
    stays_silent(lambda x: np.maximum(x, 0).sum(), x0, lambda x: np.where(x == 0, positive, x > 0))


@pytest.mark.parametrize("bad", [np.inf, np.nan])
@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("distance", [0.0, 1e-12, 1e-8, 1e-7, 1e-5])
def test_values_that_end_nearby_are_no_wrong_gradient(bad, side, distance):
    def fun(x):
        return bad if side * (x[0] - 1.5) > distance else float(x @ x)

    stays_silent(fun, [1.5, 1.0], lambda x: 2 * x)


@pytest.mark.parametrize("off", [0.0, 1e-12, 1e-9, 1e-7, 1e-5])
def test_a_stationary_start_is_no_wrong_gradient(off):
    def differenced(x):
        h = 1.5e-8
        return np.array([(rosen(x + h * e) - rosen(x)) / h for e in np.eye(3)])

    for jac in (rosen_der, differenced):
        stays_silent(rosen, 1 + off * np.array([1.0, -2, 3]), jac)


def test_bounds_are_kept_to():
    def fun(x):
        assert (x >= 0).all()
        assert (x <= 1).all()
        return rosen(x)

    for x0 in ([0.0, 0, 0], [1.0, 1, 0], [1e-9, 0.5, 1 - 1e-9]):
        stays_silent(fun, x0, bounds=[(0, 1)] * 3)


def test_a_right_gradient_costs_one_value():
    for seed in range(20):
        x0 = start(seed)
        res = ksdmin.minimize(rosen, x0, jac=rosen_der, options={"maxiter": 0})
        assert (res.nfev, res.njev) == (2, 1)
        np.testing.assert_array_equal(res.x, x0)
