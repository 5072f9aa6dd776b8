"""Bounds: the solution on faces and in corners, and nothing ever evaluated outside."""

import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import Bounds, OptimizeWarning, rosen, rosen_der, rosen_hess, rosen_hess_prod

import ksdmin
from ksdmin._problem.box import as_box
from tests.noted import noted

rng = np.random.default_rng(0)
A = rng.standard_normal((12, 8))
H = A.T @ A / 12 + 0.1 * np.eye(8)
DERIVATIVES = {
    "hessp": {"jac": rosen_der, "hessp": rosen_hess_prod},
    "hess": {"jac": rosen_der, "hess": rosen_hess},
    "jac": {"jac": rosen_der},
    "nothing": {},
    "3-point": {"jac": "3-point"},
    "cs": {"jac": "cs"},
}
BOXES = {
    "a face": Bounds(-1.5, 0.8),
    "a corner": Bounds([2.0, 3.0, 2.5, 2.0], [4.0, 4.0, 3.0, 9.0]),
    "one side": Bounds([-np.inf, -np.inf, -np.inf, 0.5], [0.3, np.inf, np.inf, np.inf]),
    "some fixed": Bounds([0.3, -1.0, 0.4, 0.1], [0.3, 1.0, 0.4, 0.5]),
    "all fixed": Bounds([0.3, 0.2, 0.4, 0.1], [0.3, 0.2, 0.4, 0.1]),
    "wide": Bounds(-50, 50),
}


def assert_never_outside(box, *seen):
    for points in seen:
        points = np.real(points)
        assert ((points >= box.lb) & (points <= box.ub)).all()


def projected(x, g, box):
    return np.abs(x - np.clip(x - g, box.lb, box.ub)).max()


@pytest.mark.parametrize("given", DERIVATIVES)
@pytest.mark.parametrize("name", BOXES)
def test_solution_and_the_box_is_never_left(name, given):
    box, (fun, seen) = BOXES[name], noted(rosen)
    x0 = np.clip([0.5, 0.6, 0.2, 0.3], box.lb, box.ub)
    res = ksdmin.minimize(fun, x0, bounds=box, **DERIVATIVES[given])
    reference = scipy.optimize.minimize(
        rosen, x0, jac=rosen_der, bounds=box, method="L-BFGS-B", options={"ftol": 1e-15}
    )
    assert res.success
    assert res.fun <= reference.fun + 1e-6
    assert projected(res.x, rosen_der(res.x), box) <= (1.1e-5 if given != "nothing" else 1e-4)
    assert_never_outside(box, seen)


@pytest.mark.parametrize("seed", range(20))
def test_quadratics_meet_the_conditions_of_kuhn_and_tucker(seed):
    rng = np.random.default_rng(seed)
    b, lower = rng.standard_normal(8), rng.uniform(-1, 0, 8)
    box = Bounds(lower, lower + rng.uniform(0, 1, 8))
    res = ksdmin.minimize(
        lambda x: x @ H @ x / 2 - b @ x,
        np.zeros(8).clip(box.lb, box.ub),
        jac=lambda x: H @ x - b,
        hessp=lambda x, p: H @ p,
        bounds=box,
        tol=1e-9,
    )
    assert res.success
    g, on_lower, on_upper = H @ res.x - b, res.x == box.lb, res.x == box.ub
    assert (g[on_lower & ~on_upper] >= -1e-9).all()
    assert (g[on_upper & ~on_lower] <= 1e-9).all()
    assert_allclose(g[~on_lower & ~on_upper], 0, atol=1e-8)


def test_pairs_and_scipys_plug_in():
    pairs = [(None, 0.5), (0.1, None), (None, None)]
    arguments = {"x0": [0.2, 0.2, 0.2], "jac": rosen_der, "bounds": pairs}
    own = ksdmin.minimize(rosen, **arguments)
    plugged = scipy.optimize.minimize(rosen, method=ksdmin.ksd, **arguments)
    assert own.success
    assert plugged.success
    assert own.x[0] == plugged.x[0] == 0.5
    assert_array_equal(own.x, plugged.x)


def test_no_bounds_at_all_are_none():
    free, boxed = (
        ksdmin.minimize(rosen, [-1.2, 1.0], jac=rosen_der, bounds=bounds)
        for bounds in (None, [(None, None)] * 2)
    )
    assert_array_equal(boxed.x, free.x)
    assert boxed.nfev == free.nfev


def test_a_start_outside():
    with pytest.warns(OptimizeWarning, match="outside the bounds"):
        res = ksdmin.minimize(rosen, [5.0, 5.0], jac=rosen_der, bounds=Bounds(-2, 2))
    assert res.success
    assert_allclose(res.x, 1, atol=1e-4)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (Bounds([0, 3], [1, 2]), r"the lower bound of x\[1\], 3.0, is above"),
        ([(0, 1)], "1 pairs for 2 variables"),
        ([1, 2], "expected scipy.optimize.Bounds or a sequence of pairs"),
        (3, "expected scipy.optimize.Bounds"),
        (Bounds([0, 0, 0], [1, 1, 1]), "do not fit 2 variables"),
        ([(np.nan, 1), (0, 1)], "a limit is NaN"),
    ],
)
def test_bounds_that_are_none(bounds, message):
    with pytest.raises(ValueError, match=message):
        ksdmin.minimize(rosen, [0.0, 0.0], jac=rosen_der, bounds=bounds)


# Differences at a bound


class Watched:
    """A quadratic with an offset, and its gradient: both note where they are called."""

    def __init__(self, n=8, seed=0, offset=100.0):
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((2 * n, n))
        self.H, at = A.T @ A / (2 * n) + 0.05 * np.eye(n), rng.uniform(0.5, 2, n)
        self.fun, values = noted(lambda x: offset + (x - at) @ self.H @ (x - at) / 2)
        self.jac, gradients = noted(lambda x: self.H @ (x - at))
        self.seen = values, gradients


def product_within(box, x, jac, hess=None):
    """The curvature's product at `x`, by differences within the box."""
    quadratic = Watched(len(x))
    given = {"fun": quadratic.fun, "jac": quadratic.jac if jac == "given" else jac, "hess": hess}
    problem = ksdmin.as_problem(**given).within(as_box(box, x))
    return quadratic, problem.curvature(x)


LOW = Bounds(0, np.inf)
ERRORS = {"given": 1e-6, "2-point": 0.1, "3-point": 1e-2, "cs": 1e-6}  # of a value of 100
CORNERS = {
    "lower": (LOW, np.zeros(8)),
    "upper": (Bounds(-np.inf, 0), np.zeros(8)),
    "both": (Bounds(-1, 1), np.array([-1.0, 1] * 4)),
    "nearly there": (LOW, np.full(8, 1e-11)),
    "one": (LOW, np.array([0.0, 1, 2, 1, 1, 1, 1, 1])),
    "some": (LOW, np.array([0.0, 1, 0, 1, 0, 1, 1, 1])),
}


@pytest.mark.parametrize("hess", ["2-point", "3-point"])
@pytest.mark.parametrize("jac", ERRORS)
@pytest.mark.parametrize("corner", CORNERS)
def test_differenced_products_at_a_bound(corner, jac, hess):
    """Whatever the direction: inwards, outwards, or inwards in some variables only."""
    box, x = CORNERS[corner]
    quadratic, times = product_within(box, x, jac, hess)
    mixed = np.random.default_rng(1).standard_normal(8)
    for v in (np.ones(8), -np.ones(8), mixed, np.eye(8)[0], -np.eye(8)[0]):
        assert_allclose(times(v), quadratic.H @ v, atol=ERRORS[jac])
    assert_never_outside(box, *quadratic.seen)


@pytest.mark.parametrize(("scheme", "error"), [("2-point", 1e-6), ("3-point", 1e-8)])
@pytest.mark.parametrize("offset", [100.0, 0.0])
@pytest.mark.parametrize("room", [0.0, 1e-14, 1e-7, 1.0])
def test_differenced_gradients_at_a_bound(scheme, error, offset, room):
    quadratic = Watched(offset=offset)
    x = np.full(8, room)
    box = as_box(LOW, x)
    problem = ksdmin.as_problem(quadratic.fun, jac=scheme).within(box)
    _, g = problem.value_and_gradient(x)
    assert_allclose(g, quadratic.jac(x), atol=error * max(1.0, offset))
    unknown = problem._gradient(x, slice(None), None)
    assert_array_equal(unknown, g)
    assert_never_outside(LOW, *quadratic.seen)


@pytest.mark.parametrize("hess", ["2-point", "3-point"])
@pytest.mark.parametrize("seed", range(3))
def test_a_run_from_a_corner_by_differences_is_one_by_products(seed, hess):
    runs = []
    for given in ({"hess": hess}, {"hessp": lambda x, p: Watched(30, seed).H @ p}):
        quadratic = Watched(30, seed)
        runs.append(
            ksdmin.minimize(quadratic.fun, np.zeros(30), jac=quadratic.jac, bounds=LOW, **given)
        )
        assert_never_outside(LOW, *quadratic.seen)
    by_differences, by_products = runs
    assert by_differences.success
    assert by_differences.nit == by_products.nit
    cost = 1 if hess == "2-point" else 2  # a product
    bases = by_products.nit  # one gradient each, if any, where its products begin from
    assert by_differences.njev <= by_products.njev + cost * by_products.nhev + bases


@pytest.mark.parametrize(
    ("target", "lower"),
    [([5.0, 5.0, 5.0], [0.0, 0.0, 0.0]), ([-6.0], [-1.0]), ([7.0, 7.0], [0, -2])],
)
@pytest.mark.parametrize("scale", [0.3, 1.0, 7.0])
def test_a_fit_ends_on_a_bound_where_rounding_leaves_it_just_before(target, lower, scale):
    """From the middle of the box, the first trust radius ends on the bound, up to rounding."""
    target, lower = scale * np.array(target), scale * np.array(lower)
    upper = lower + scale
    for share in np.linspace(0.05, 0.95, 19):
        x0 = lower + share * (upper - lower)
        bounds = lower, upper
        res = ksdmin.least_squares(lambda x: x - target, x0, lambda x: np.eye(len(x)), bounds)
        assert res.success, res.message
        assert_array_equal(res.x, np.clip(target, lower, upper))
