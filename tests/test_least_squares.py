"""ksdmin.least_squares: SciPy's interface, and what it adds. (SciPy's own tests: tests/interop.)"""

import pickle

import numpy as np
import pytest
import scipy.optimize
from scipy.sparse import csr_array, diags_array, eye_array, vstack
from scipy.sparse.linalg import aslinearoperator

import ksdmin
from tests.decay import DATA as Y
from tests.decay import START, T, decay
from tests.decay import slopes_of_decay as slopes
from tests.noted import noted


def tridiagonal(x):
    """Broyden's function."""
    r = (3 - x) * x + 1
    r[1:] -= x[:-1]
    r[:-1] -= 2 * x[1:]
    return r


def slopes_of_tridiagonal(x):
    ones = np.ones(len(x) - 1)
    return csr_array(diags_array([-ones, 3 - 2 * x, -2 * ones], offsets=[-1, 0, 1]))


def test_the_result_is_scipys_and_more():
    res = ksdmin.least_squares(decay, START, slopes)
    own = scipy.optimize.least_squares(decay, START, slopes, ftol=1e-15, xtol=1e-15, gtol=1e-15)
    assert own.keys() <= res.keys()
    np.testing.assert_allclose(res.x, own.x, rtol=1e-7)
    assert res.cost == pytest.approx(own.cost)
    np.testing.assert_array_equal(res.fun, decay(res.x))
    np.testing.assert_array_equal(res.jac, slopes(res.x))
    np.testing.assert_allclose(res.grad, res.jac.T @ res.fun, atol=1e-12)
    assert res.optimality == abs(res.grad).max()
    np.testing.assert_allclose(res.standard_errors, np.sqrt(np.diag(ksdmin.covariance(res))))
    assert res.success
    assert res.status in (1, 2, 3)
    assert res.history[-1].value == res.cost
    assert len(res.history) == res.nit + 1


def test_what_the_data_do_not_determine_has_an_infinite_error():
    res = ksdmin.least_squares(lambda x: (x[0] + x[1]) * T - Y, [1.0, 2.0])
    assert res.success
    assert np.isinf(res.standard_errors).all()


def test_a_variable_on_a_bound_has_no_error():
    bounds = [-np.inf, -np.inf, -np.inf], [np.inf, 1.0, np.inf]
    res = ksdmin.least_squares(decay, START, slopes, bounds)
    np.testing.assert_array_equal(res.active_mask, [0, 1, 0])
    assert res.x[1] == 1.0
    np.testing.assert_array_equal(np.isnan(res.standard_errors), [False, True, False])
    alone = ksdmin.least_squares(lambda z: decay([z[0], 1.0, z[1]]), [1.0, 0.0])
    np.testing.assert_allclose(res.standard_errors[[0, 2]], alone.standard_errors, rtol=1e-6)


@pytest.mark.parametrize("loss", ["soft_l1", "huber", "cauchy", "arctan"])
def test_robust_losses(loss):
    outliers = np.where(np.arange(25) % 6 == 2, 3.0, 0.0)
    given = {"loss": loss, "f_scale": 0.1}
    res = ksdmin.least_squares(lambda x: decay(x) + outliers, START, slopes, **given)
    tight = {"ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15, "x_scale": "jac"}
    own = scipy.optimize.least_squares(
        lambda x: decay(x) + outliers, START, slopes, **given, **tight
    )
    assert res.success
    assert res.cost <= own.cost * (1 + 1e-9)
    np.testing.assert_allclose(res.jac, own.jac, rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "unit"),
    [(csr_array, 1e-8), (csr_array, 1e6), (aslinearoperator, 1e6), (lambda J: J.toarray(), 1e-8)],
)
def test_units_of_residuals_change_nothing_with_many_variables(kind, unit):
    def run(unit, **tolerances):
        return ksdmin.least_squares(
            lambda x: np.append(unit * tridiagonal(x), unit * (x - 0.3)),
            -np.ones(310),
            lambda x: kind(unit * vstack([slopes_of_tridiagonal(x), eye_array(310)], "csr")),
            **{"gtol": 1e-6, "ftol": None, "xtol": None, **tolerances},
        )

    res, plain = run(unit), run(1.0)
    assert res.status == plain.status == 1
    assert "gtol" in res.message
    np.testing.assert_allclose(res.x, plain.x, atol=1e-4)
    assert run(unit, ftol=1e-6, gtol=None).status == 2


def test_differences_of_several_columns_at_once():
    counted, calls = noted(tridiagonal)
    pattern = slopes_of_tridiagonal(np.zeros(30)) != 0
    for scheme, each in (("2-point", 3), ("3-point", 6), ("cs", 3)):
        calls.clear()
        res = ksdmin.least_squares(counted, -np.ones(30), scheme, jac_sparsity=pattern)
        assert res.success
        assert res.cost < 1e-20
        assert len(calls) == res.nfev + each * res.njev
        dense = slopes_of_tridiagonal(res.x).toarray()
        np.testing.assert_allclose(res.jac.toarray(), dense, atol=1e-6)


def test_sparse_differences_stay_within_bounds():
    lower, upper = np.full(30, -0.9), np.full(30, -0.4)
    counted, asked = noted(tridiagonal)
    pattern = slopes_of_tridiagonal(np.zeros(30)) != 0
    for scheme in ("2-point", "3-point"):
        res = ksdmin.least_squares(
            counted, upper, scheme, bounds=(lower, upper), jac_sparsity=pattern
        )
        assert res.success
        exact = ksdmin.least_squares(tridiagonal, upper, slopes_of_tridiagonal, (lower, upper))
        assert res.cost == pytest.approx(exact.cost, rel=1e-9)
    assert all(((x >= lower) & (x <= upper)).all() for x in asked)


def test_variables_of_all_sizes_are_differenced_in_their_own():
    units = np.array([1e-9, 1e6, 1e-4])
    res = ksdmin.least_squares(lambda z: decay(z / units), START * units)
    exact = ksdmin.least_squares(decay, START, slopes)
    assert res.success
    np.testing.assert_allclose(res.x / units, exact.x, rtol=1e-6)


def test_the_users_steps_of_differences():
    watched, steps = noted(decay)
    ksdmin.least_squares(watched, START, diff_step=[1e-3, 1e-4, 1e-5], max_nfev=1)
    apart = np.array([x - START for x in steps[1:4]])
    np.testing.assert_allclose(np.diag(apart), [1e-3, 3e-5, 1e-5], rtol=1e-9)


def test_evaluations_are_counted_as_scipy_does():
    counted, calls = noted(decay)
    res = ksdmin.least_squares(counted, START)
    assert len(calls) >= res.nfev + 3 * res.njev  # the last ones may be 3-point
    calls.clear()
    res = ksdmin.least_squares(counted, START, slopes)
    assert len(calls) == res.nfev
    calls.clear()
    res = ksdmin.least_squares(counted, START, slopes, max_nfev=4)
    assert (len(calls), res.nfev, res.status, res.success) == (4, 4, 0, False)


def test_the_users_scale_stays():
    for scale in (1.0, [1.0, 0.1, 1.0], "jac"):
        res = ksdmin.least_squares(decay, START, slopes, x_scale=scale)
        assert res.success
        np.testing.assert_allclose(res.x, ksdmin.least_squares(decay, START).x, rtol=1e-6)
    short = ksdmin.least_squares(decay, START, slopes, x_scale=[1e-3, 1.0, 1.0], max_nfev=2)
    free = ksdmin.least_squares(decay, START, slopes, x_scale=[1e3, 1.0, 1.0], max_nfev=2)
    assert abs(short.x - START)[0] < abs(free.x - START)[0]


def test_a_callback_sees_residuals_and_may_stop():
    shown = []

    def callback(intermediate_result):
        shown.append(intermediate_result)
        if len(shown) == 3:
            raise StopIteration

    res = ksdmin.least_squares(decay, START, slopes, callback=callback)
    assert (res.status, res.success, res.nit) == (-2, False, 3)
    np.testing.assert_array_equal(shown[-1].fun, decay(shown[-1].x))
    assert shown[-1].cost == pytest.approx(res.cost)


def test_lines_for_each_iteration(capsys):
    res = ksdmin.least_squares(decay, START, slopes, verbose=2)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == res.nit + 2
    assert "final cost" in lines[-1]


def test_scipys_methods_are_handed_on():
    for method in ("trf", "dogbox", "lm"):
        own = {"ftol": 1e-9, "xtol": 1e-9, "gtol": 1e-9}
        theirs = scipy.optimize.least_squares(decay, START, slopes, method=method, **own)
        res = ksdmin.least_squares(decay, START, slopes, method=method, **own)
        np.testing.assert_array_equal(res.x, theirs.x)


def test_it_shows_itself():
    res = ksdmin.least_squares(decay, START, slopes)
    assert "status: 2 (ftol)" in repr(res)
    assert "jac: 25 x 3" in repr(res)
    assert "<table" in res._repr_html_()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(res)).x, res.x)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"x0": [[1.0, 2.0]]}, ValueError, "a vector"),
        ({"x0": [1j, 2, 3]}, ValueError, "real"),
        ({"jac": "oops"}, ValueError, "2-point"),
        ({"method": "tfr"}, ValueError, "did you mean 'trf'"),
        ({"bounds": (0, 1, 2)}, ValueError, "lower, upper"),
        ({"bounds": (5.0, 9.0)}, ValueError, "outside the bounds"),
        ({"bounds": ([1.0, 2.0], 3.0)}, ValueError, "do not fit 3"),
        ({"bounds": (1.0, 0.0)}, ValueError, "above its upper"),
        ({"x_scale": -1.0}, ValueError, "x_scale"),
        ({"x_scale": [1.0, 2.0]}, ValueError, "x_scale"),
        ({"diff_step": [0.0, 1.0, 1.0]}, ValueError, "diff_step"),
        ({"loss": "hubber"}, ValueError, "huber"),
        ({"max_nfev": 0}, ValueError, "max_nfev"),
        ({"verbose": 3}, ValueError, "verbose"),
        ({"workers": 4}, ValueError, "workers"),
        ({"jac_sparsity": np.ones((3, 3))}, ValueError, r"expected \(25, 3\)"),
        ({"jac": lambda x: np.ones((3, 25))}, ValueError, r"expected \(25, 3\)"),
        ({"ftol": None, "xtol": None, "gtol": None}, ValueError, "at least one"),
        ({"fun": lambda x: np.full(25, np.nan)}, ValueError, "not finite"),
        ({"max_nfev": "many"}, TypeError, "max_nfev='many'"),
        ({"max_nfev": [3]}, TypeError, "max_nfev"),
        ({"callback": 3}, TypeError, "callback is a int"),
        ({"jac": np.ones((25, 3))}, TypeError, "lambda x: J"),
    ],
)
def test_wrong_arguments(given, error, said):
    with pytest.raises(error, match=said):
        ksdmin.least_squares(**{"fun": decay, "x0": START, **given})


@pytest.mark.parametrize(
    ("fun", "x0"),
    [
        (lambda x: x**2, [1.0, 2.0]),
        (lambda x: np.array([x[0] + x[1], x[0] - x[1], 3 * x[0]]), [1.0, 2.0]),
        (lambda x: 1e-30 * x**2, [1.0, 2.0]),
    ],
)
def test_residuals_that_are_zero_at_the_minimum(fun, x0):
    res = ksdmin.least_squares(fun, x0)
    assert (res.success, res.status) == (True, 2)
    assert res.cost <= 1e-31 * res.history[0].value
    assert res.nfev <= 30
    assert ksdmin.least_squares(fun, x0, ftol=None).status != 2


def test_a_start_far_off_is_no_reason_to_end_early():
    t = np.linspace(0.5, 1.0, 9)
    res = ksdmin.least_squares(lambda x: np.exp(x[0] * t) - np.exp(t), [60.0])
    assert res.history[0].value > 1e40
    assert res.x[0] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", ["linear", "soft_l1"])
@pytest.mark.parametrize("rate", [0.8, 0.877])
def test_a_start_where_squares_of_slopes_overflow_is_left(rate, loss, sparse):
    t = np.linspace(10, 400, 25)

    def jac(x):
        e = np.exp(x[1] * t)
        J = np.stack([e, x[0] * t * e], 1)
        return csr_array(J) if sparse else J

    def residuals(x):
        return x[0] * np.exp(x[1] * t) - 2 * np.exp(-0.01 * t)

    with np.errstate(over="ignore"):
        res = ksdmin.least_squares(residuals, [1.0, rate], jac, loss=loss, max_nfev=500)
    assert res.history[0].value > 1e130
    assert res.cost < 10  # it is 5.9 for x[0] = 0


def test_residuals_whose_squares_overflow_are_outliers():
    t = np.linspace(10, 400, 25)

    def residuals(x):
        return x[0] * np.exp(x[1] * t) - 2 * np.exp(-0.01 * t)

    res = ksdmin.least_squares(residuals, [1.0, 1.4], loss="arctan")
    assert (res.success, res.cost) == (True, pytest.approx(25 * np.pi / 4))  # it is flat there


def test_a_jacobian_that_is_not_finite_where_the_value_is_lower_is_no_success():
    def jac(x):
        return np.array([[1.0]]) if x[0] > 1 else np.array([[np.nan]])

    res = ksdmin.least_squares(lambda x: x, [2.0], jac)
    assert (res.success, res.status) == (False, -3)
    assert "not finite" in res.message


@pytest.mark.parametrize("last", [0.0, 1.0])
def test_variables_that_tend_to_zero_are_differenced_in_the_size_of_the_start(last):
    y = 2 * np.exp(-T)
    line_beside, calls = noted(lambda x: x[0] * np.exp(-x[1] * T) + x[2] + x[3] * T - y)
    res = ksdmin.least_squares(line_beside, [1.0, 1.0, 1.0, last])
    assert res.success
    assert len(calls) <= 25
    np.testing.assert_allclose(res.x, [2, 1, 0, 0], atol=1e-12)
    np.testing.assert_allclose(res.jac[:, 2:], np.stack([np.ones(25), T], 1), atol=1e-5)


def test_forms_that_scipy_takes():
    plain = ksdmin.least_squares(decay, START, slopes, loss="huber", f_scale=0.5)
    for f_scale in (np.float32(0.5), np.array(0.5)):
        res = ksdmin.least_squares(decay, START, slopes, None, loss="huber", f_scale=f_scale)
        np.testing.assert_array_equal(res.x, plain.x)
    with_args = ksdmin.least_squares(lambda x, a, b: a * decay(x) + b, START, args=[1.0, 0.0])
    np.testing.assert_allclose(with_args.x, ksdmin.least_squares(decay, START).x, rtol=1e-6)
    assert sum(plain.kinds.values()) == plain.nit
    for method in ("ksd", "trf"):
        assert ksdmin.least_squares(decay, START, slopes, None, method).success


@pytest.mark.parametrize("library", ["jax.numpy", "torch"])
def test_arrays_of_other_libraries_are_taken(library):
    xp = pytest.importorskip(library)
    asarray = xp.asarray
    res = ksdmin.least_squares(
        lambda x: asarray(decay(x)), START, lambda x: asarray(slopes(x)), xtol=1e-5, ftol=1e-6
    )
    assert res.success
    np.testing.assert_allclose(res.x, ksdmin.least_squares(decay, START).x, rtol=1e-2)


def test_a_number_of_residuals_that_changes_is_told():
    for jac in ("2-point", lambda x: slopes(x)[: 25 if x[0] == 1 else 23]):
        with pytest.raises(ValueError, match="residuals returned 23 values, before 25"):
            ksdmin.least_squares(lambda x: decay(x)[: 25 if x[0] == 1 else 23], START, jac)


def test_finer_differences_begin_with_full_steps():
    """Coarse slopes had made the radius short: it took eight doublings, with a Jacobian each."""
    t = np.linspace(0, 1, 60)
    y = np.sin(5 * t) + 0.01 * np.random.default_rng(5).standard_normal(60)
    res = ksdmin.least_squares(lambda p: np.polyval(p, t) - y, np.zeros(11))
    best = np.polyfit(t, y, 10)
    assert res.success
    assert res.cost == pytest.approx(np.sum((np.polyval(best, t) - y) ** 2) / 2)
    assert res.njev < 22


@pytest.mark.parametrize("jac", ["2-point", "3-point"])
def test_differences_at_the_edge_of_the_domain(jac):
    """There fun is finite on one side only."""
    with np.errstate(invalid="ignore"):
        res = ksdmin.least_squares(lambda x: np.sqrt(1 - x) - 0.3, [0.5, 1 - 1e-9], jac=jac)
    assert res.success
    assert res.x == pytest.approx([0.91, 0.91])
