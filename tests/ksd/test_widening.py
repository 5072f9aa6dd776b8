"""Widening: a space on samples grows as far as it pays on other samples."""

import numpy as np
import pytest

import ksdmin
from ksdmin._ksd.krylov import krylov_basis
from ksdmin._ksd.precond import IDENTITY, Preconditioner
from ksdmin._ksd.steps.krylov import Widening
from ksdmin._problem.arrays import Space

N = 40
SPECTRUM = np.geomspace(1, 1e-4, N)


def badly_scaled(seed=0):
    """A matrix whose eigenvalues span four decades, a gradient: each has as much to gain."""
    rng = np.random.default_rng(seed)
    axes, _ = np.linalg.qr(rng.standard_normal((N, N)))
    return axes * SPECTRUM @ axes.T, axes @ SPECTRUM**0.5


def grown(H, g, enough, P=IDENTITY):
    """The dimension of the space that grows until `enough`."""
    return krylov_basis(Space(g), g, P, lambda v: H @ v, [], N, enough).dim


class Counted:
    """A curvature that counts how often it is asked for, and its products."""

    def __init__(self, H):
        self.H, self.asked, self.products = H, 0, 0

    def __call__(self):
        self.asked += 1
        return self.product

    def product(self, v):
        self.products += 1
        return self.H @ v


# The Newton step of the first vectors


@pytest.mark.parametrize("P", [IDENTITY, Preconditioner.diagonal(np.linspace(1, 2, N))])
def test_the_newton_step_solves_within_the_first_vectors(P):
    H, g = badly_scaled()
    seen = []

    def enough(growth):
        if growth.dim == 8:
            seen.extend((growth.newton_step(k), growth._rows.V[:k, :].copy()) for k in (3, 8))
        return growth.dim == 8

    grown(H, g, enough, P)
    for (d, slope), V in seen:
        assert V @ (H @ d + g) == pytest.approx(np.zeros(len(V)), abs=1e-10)
        assert slope == pytest.approx(g @ d)


# Where a space ends


def test_where_other_samples_agree_a_badly_scaled_problem_has_a_wide_space():
    H, g = badly_scaled()
    assert grown(H, g, Widening(Counted(H), 4, 20.0)) > 8


def test_where_other_samples_disagree_it_stays_narrow():
    """On them the directions of little curvature have much of it."""
    H, g = badly_scaled()
    assert grown(H, g, Widening(Counted(H + np.eye(N)), 4, 20.0)) == 4


def test_an_expensive_rest_of_the_step_gives_a_wider_space():
    H, g = badly_scaled()
    other = H + 0.02 * np.eye(N)
    dims = [grown(H, g, Widening(Counted(other), 4, rest)) for rest in (0.0, 5.0, 1000.0)]
    assert dims == sorted(dims)
    assert dims[0] < dims[-1]


def test_it_is_asked_at_the_first_number_and_at_each_doubling():
    H, g = badly_scaled()
    counted, asked = Counted(H), []
    widening = Widening(counted, 4, 1e9)

    def enough(growth):
        before = counted.products
        ended = widening(growth)
        asked.append((growth.dim, counted.products - before))
        return ended

    grown(H, g, enough)
    assert [dim for dim, products in asked if products] == [4, 8, 16, 32]
    assert counted.asked == 1
    assert counted.products == 5  # and one for the half of the first


def test_a_space_that_never_gets_so_far_costs_nothing():
    H, g = badly_scaled()
    counted = Counted(H)
    widening = Widening(counted, 4, 20.0)
    grown(H, g, lambda growth: widening(growth) or growth.dim == 3)
    assert counted.asked == counted.products == 0


def test_curvature_that_is_not_positive_ends_it():
    H, g = badly_scaled()
    assert grown(H, g, Widening(Counted(-H), 4, 20.0)) == 4


def test_a_first_number_of_one():
    H, g = badly_scaled()
    assert grown(H, g, Widening(Counted(H), 1, 2.0)) >= 1


# Runs


def decades(n_samples=4000, n=100):
    """Least squares whose Hessian spans six decades: a space of 20 vectors is far too small."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_samples, n)) * np.geomspace(1, 1e-3, n)
    y = X @ rng.standard_normal(n)
    return {
        "fun": lambda x, idx: np.mean((X[idx] @ x - y[idx]) ** 2) / 2,
        "x0": np.zeros(n),
        "jac": lambda x, idx: (X[idx] @ x - y[idx]) @ X[idx] / len(y[idx]),
        "hessp": lambda x, p, idx: (X[idx] @ p) @ X[idx] / len(y[idx]),
        "subsets": ksdmin.Subsets(n_samples, 1.0, 0.25, 0.25),
        "rng": 0,
    }


@pytest.mark.parametrize("options", [{}, {"krylov_dim": 20}, {"without": ["width"]}])
def test_a_run_widens_its_space_unless_it_is_told_not_to(options):
    res = ksdmin.minimize(**decades(), options={"maxiter": 12, **options})
    on_samples = res.history["size_B"][:-1] < 4000  # a row has the sets of the next step
    most = max(res.history["dim"][1:][on_samples])
    first = options.get("krylov_dim", 4000 // 1000) + 5  # with the previous directions
    assert most <= first if options else most > first


def test_a_wide_space_saves_passes():
    free = ksdmin.minimize(**decades(), options={"gtol": 1e-6})

    def stop(intermediate_result):
        if intermediate_result.record.passes > free.passes / 0.7:
            raise StopIteration

    options = {"gtol": 1e-6, "without": ["width"]}
    narrow = ksdmin.minimize(**decades(), options=options, callback=stop)
    assert free.success
    assert not narrow.success


# Where every set is the whole


D = np.geomspace(1e-3, 1, 2000)  # each axis has as steep a slope at the start
START = 1 / D


def badly_scaled_function(x):
    return float(np.sum(D * x**2 / 2 - np.cos(x) / 10))


def its_gradient(x):
    return D * x + np.sin(x) / 10


def its_product(x, p):
    return (D + np.cos(x) / 10) * p


@pytest.mark.parametrize("hessp", [its_product, None], ids=["products", "differences"])
def test_no_space_costs_more_than_the_run_before_it(hessp):
    fun, jac, x0 = badly_scaled_function, its_gradient, START
    history = ksdmin.minimize(fun, x0, jac=jac, hessp=hessp).history
    assert history["njev"][1] <= 20
    assert history["value"][1] < history["value"][0]
    spent = (history["njev"] + history["nhev"])[:-1]
    dims = history["dim"][1:]
    assert (dims <= np.maximum(5, spent)).all()
    assert dims.max() > 5


@pytest.mark.parametrize("options", [{"krylov_dim": 40}, {"without": ["width"]}])
def test_a_space_of_your_own_size_is_not_limited(options):
    fun, jac, x0 = badly_scaled_function, its_gradient, START
    res = ksdmin.minimize(fun, x0, jac=jac, options={"maxiter": 1, **options})
    assert res.history["dim"][1] > 5
