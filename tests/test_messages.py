"""Messages that name the cause of a bad end, and the cure."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import OptimizeWarning, rosen, rosen_der, rosen_hess, rosen_hess_prod

import ksdmin
from ksdmin import Status
from tests.noted import noted

START = np.array([-1.2, 1.0, 0.5])
CONTRADICTED = "jac contradicts fun at x0"
wrong_jac = pytest.mark.filterwarnings(f"ignore:{CONTRADICTED}")


def bowl(x):
    return float(x @ x)


# A wrong gradient


@wrong_jac
@pytest.mark.parametrize(
    ("jac", "most"),
    [
        (lambda x: -rosen_der(x), 60),
        (lambda x: rosen_der(x)[::-1].copy(), 6000),
        (lambda x: rosen_der(x) + np.array([100.0, 0, 0]), 6000),
    ],
)
def test_a_gradient_along_which_fun_rises(jac, most):
    """A wrong sign is noticed early; the values that show it are counted."""
    fun, calls = noted(rosen)
    res = ksdmin.minimize(fun, START, jac=jac)
    assert res.status == Status.PRECISION_LOSS
    assert "fun rises along -jac: check jac, and its sign" in res.message
    assert res.nfev == len(calls) < most


@wrong_jac
@pytest.mark.parametrize("bounds", [None, [(-3, 3)] * 3])
def test_a_gradient_that_is_too_large(bounds):
    """It ends where fun has its minimum, and this gradient does not vanish."""

    def jac(x):
        return 2 * x + 1e3 * np.array([1.0, 1, 1]) * (1 + x @ x)

    res = ksdmin.minimize(bowl, np.ones(3), jac=jac, bounds=bounds)
    assert res.status == Status.PRECISION_LOSS
    assert "jac" in res.message
    assert "check" in res.message


def test_a_kink_is_no_wrong_gradient():
    def fun(x):
        return float(abs(x[0] - np.pi / 7) + 10 * abs(x[1] - x[0] ** 2))

    def jac(x):  # one of the slopes at a kink, never zero
        first = 1.0 if x[0] >= np.pi / 7 else -1.0
        second = 10.0 if x[1] >= x[0] ** 2 else -10.0
        return np.array([first - 2 * x[0] * second, second])

    res = ksdmin.minimize(fun, START[:2], jac=jac)
    assert res.status == Status.PRECISION_LOSS
    assert "jac" not in res.message


# Not finite


def with_bad_rows(*bad, n=1500):
    """A mean of squares, whose values are NaN for some rows."""
    X = np.random.default_rng(0).standard_normal((n, 3))
    X[list(bad)] = np.nan

    def fun(x, idx):
        return np.mean((X[idx] @ x - 1) ** 2)

    return fun, lambda x, idx: 2 * X[idx].T @ (X[idx] @ x - 1) / len(X[idx])


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ([700], "because of sample 700: look at the data, or start elsewhere."),
        ([0, 1499], "because of the samples 0, 1499: look at the data, or start elsewhere."),
        ([0, 1, 5, 9], "because of the samples 0, 1, 5 and perhaps others: look at the data, or "),
        (
            range(1500),
            "fun(x0) is nan: start where it is finite, or look for such values in the data.",
        ),
    ],
)
def test_samples_that_are_not_finite_are_named(bad, told):
    fun, jac = with_bad_rows(*bad)
    res = ksdmin.minimize(fun, START, jac=jac, subsets=1500, rng=0)
    assert res.status == Status.NOT_FINITE
    assert told in res.message


@pytest.mark.parametrize("library", ["torch", "jax", "autograd"])
def test_samples_of_a_model_that_are_not_finite_are_named(library):
    pytest.importorskip(library)
    X = np.random.default_rng(0).standard_normal((50, 3)).astype("float32")
    X[17, 1] = np.nan
    if library == "torch":
        import torch

        net, data = torch.nn.Linear(3, 1), (X, X[:, :1])
        problem = ksdmin.from_torch(net, torch.nn.MSELoss(), data, precond=None)
    else:
        make = getattr(ksdmin, f"from_{library}")
        params = np.ones(3, "float32")
        problem = make(lambda w, x: x @ w, "squared-error", (X, X[:, 0]), params=params)
    assert "because of sample 17: look at the data" in ksdmin.minimize(problem, rng=0).message


def test_a_gradient_that_is_not_finite():
    res = ksdmin.minimize(bowl, START, jac=lambda x: x * np.nan)
    assert res.message.endswith(
        "The gradient at x0 is not finite, and the value is 2.69: nan in entry 0, "
        "where x[0] is -1.2, nan in entry 1, where x[1] is 1, nan in entry 2, where x[2] is 0.5."
    )


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("scale", [1e200, 1e300])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_huge_values_end_with_a_status(n, scale):
    res = ksdmin.minimize(
        lambda x: scale * (x @ x), np.arange(1.0, n + 1), jac=lambda x: 2 * scale * x
    )
    assert res.status in set(Status)


# What callables may be


def test_a_hess_that_is_not_written():
    def hess(x):
        raise NotImplementedError

    with pytest.warns(OptimizeWarning, match="hess raised NotImplementedError: gradients are diff"):
        res = ksdmin.minimize(rosen, START, jac=rosen_der, hess=hess)
    expected = ksdmin.minimize(rosen, START, jac=rosen_der)
    assert res.success
    assert_allclose(res.x, expected.x, atol=1e-4)
    with pytest.warns(OptimizeWarning, match="hessp is used"):
        res = ksdmin.minimize(rosen, START, jac=rosen_der, hess=hess, hessp=rosen_hess_prod)
    assert res.nhev > 0


def test_a_hess_that_fails_otherwise():
    """At once, as statsmodels hands one over; later it is an error; so is a wrong argument."""

    def fails_at(call, error):
        calls = iter(range(100))

        def hess(x):
            if next(calls) == call:
                raise error
            return rosen_hess(x)

        return hess

    with pytest.warns(OptimizeWarning, match=r"hess raised ValueError \(complex step\): gradients"):
        ksdmin.minimize(rosen, START, jac=rosen_der, hess=fails_at(0, ValueError("complex step")))
    with pytest.raises(ZeroDivisionError):
        ksdmin.minimize(rosen, START, jac=rosen_der, hess=fails_at(1, ZeroDivisionError))
    with pytest.raises(TypeError):
        ksdmin.minimize(rosen, START, jac=rosen_der, hess=lambda: 0)


@pytest.mark.parametrize("shape", [(3, 1), (1, 3)])
def test_a_gradient_that_is_a_column_or_a_row(shape):
    expected = ksdmin.minimize(rosen, START, jac=rosen_der)
    for given in (
        {"fun": rosen, "jac": lambda x: rosen_der(x).reshape(shape)},
        {"fun": lambda x: (rosen(x), rosen_der(x).reshape(shape)), "jac": True},
    ):
        assert_allclose(ksdmin.minimize(x0=START, **given).x, expected.x, atol=1e-5)
    with pytest.raises(ValueError, match=r"jac returned shape \(9,\), expected \(3,\)"):
        ksdmin.minimize(rosen, START, jac=lambda x: np.ones((1, 9)))


def test_a_data_frame():
    class Frame:
        """A pandas.DataFrame, as far as brackets go: they look for columns."""

        def __getitem__(self, columns):
            raise KeyError(f"None of {columns} are in the columns")

    with pytest.raises(KeyError) as caught:
        ksdmin.minimize(lambda x, idx: Frame()[idx] @ x, START, subsets=10_000)
    assert "df.iloc[idx]" in caught.value.__notes__[1]


# How functions are called


def of_torch(x):
    return pytest.importorskip("torch").sum(x**2)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"fun": lambda x, idx: x @ x}, "needs subsets=N"),
        ({"fun": of_torch}, "torch.tensor(x0)"),
        ({"jac": rosen_der, "hess": rosen_hess_prod}, "hessp as hessp(x, p, *args)"),
        (
            {"jac": rosen_der, "callback": lambda x, state: None},
            "a callback is called as callback(x), or",
        ),
    ],
    ids=["fun", "torch", "hess", "callback"],
)
def test_functions_of_other_arguments_are_told_their_own(given, told):
    with pytest.raises(TypeError) as caught:
        ksdmin.minimize(**{"fun": rosen, "x0": START} | given)
    assert told in caught.value.__notes__[0]


def test_the_paper_is_an_object():
    with pytest.raises(TypeError, match=r"not 'paper' \(for the paper's .*: options=ksdmin.PAPER"):
        ksdmin.minimize(bowl, START, options="paper")
    with pytest.warns(OptimizeWarning, match=r"policies \(for the paper's algorithm"):
        ksdmin.minimize(bowl, START, options={"policies": "paper"})


# The edge of a function


@pytest.mark.parametrize("beyond", [np.inf, np.nan])
@pytest.mark.parametrize("x0", [[3.0, 1.0], [2.0, -4.0]])
def test_a_function_that_ends_before_its_minimum(beyond, x0):
    def fun(x):
        return beyond if x[0] < 1.5 else float(x @ x)

    res = ksdmin.minimize(fun, x0, jac=lambda x: 2 * x)
    assert not res.success
    assert f"fun is {beyond} after a step of " in res.message
    assert "jac" not in res.message


# A gradient that is not finite in mid-run


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_ends_in_mid_run(bad):
    def jac(x):
        g = rosen_der(x)
        g[1] = bad if rosen(x) < 1 else g[1]
        return g

    with np.errstate(all="ignore"):
        res = ksdmin.minimize(rosen, START, jac=jac)
    assert res.status == Status.NOT_FINITE
    assert "is not finite, and the value is 0." in res.message
    assert f"{bad} in entry 1, where x[1] is " in res.message
    assert f"The run ended after iteration {res.nit}." in res.message


NODES = np.linspace(0, 1, 20)


@pytest.mark.parametrize(
    ("fun", "x0", "status", "told"),
    [
        (
            lambda x: np.inf if x[0] else x[1] ** 2,
            [0.0, 1],
            Status.NOT_FINITE,
            r"fun is not finite near x0, so finite differences fail.*in entry 0, where x\[0\] is 0",
        ),
        (
            lambda x: (x[0] - 1) ** 2 + x[1] ** 2 if x[0] < 0.5 else np.inf,
            [0.0, 1],
            Status.PRECISION_LOSS,
            "x lies at the edge of the region where fun is finite",
        ),
        (
            lambda b: abs(NODES**3 - np.vander(NODES, 3) @ b).sum(),
            START,
            Status.PRECISION_LOSS,
            r"Where fun has a kink at its minimum \(abs, max\), no gradient vanishes\.",
        ),
    ],
    ids=["not finite", "edge", "kink"],
)
def test_without_jac_fun_is_named(fun, x0, status, told):
    """The user knows of no gradient; differences go to the side where fun is finite."""
    res = ksdmin.minimize(fun, x0)
    assert res.status == status
    assert re.search(told, res.message)
    assert "edge" not in told or res.x[0] == pytest.approx(0.5, abs=1e-6)


# Arguments of the wrong kind


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"callback": [print]}, "callback: expected a function, not list"),
        ({"subsets": 9, "rng": "a"}, "rng='a': expected a non-negative integer"),
        ({"hess": lambda x: None}, "hess returned None: is a return statement missing"),
        ({"jac": lambda x: None}, "jac returned None: is a return statement missing"),
        ({"hessp": lambda x, p: None}, "hessp returned None: is a return statement missing"),
    ],
    ids=["callback", "rng", "hess", "jac", "hessp"],
)
def test_what_is_of_the_wrong_kind(given, told):
    with pytest.raises(TypeError, match=told):
        ksdmin.minimize(**{"fun": rosen, "x0": START, "jac": rosen_der} | given)


def test_options_by_number():
    with pytest.warns(OptimizeWarning, match="Unknown solver options: 1"):
        ksdmin.minimize(rosen, START, jac=rosen_der, options={1: 2})
