"""Least squares with many unknowns and a sparse Jacobian: steps by factors, or by products."""

import numpy as np
import pytest
import scipy.optimize
from scipy.sparse import block_diag, csr_array, diags_array, eye_array, vstack
from scipy.sparse.linalg import LinearOperator

import ksdmin
from examples.benchmarks.structured_suite import others, scenes
from ksdmin._ksd.sparse_model import SparseEquations
from ksdmin._problem.structure import Structure, pattern_of
from tests.noted import noted


@pytest.fixture(scope="module")
def scene():
    return scenes.scene(2000)


@pytest.fixture(scope="module")
def fitted(scene):
    return ksdmin.least_squares(scene.residuals, scene.x0, scene.jacobian, ftol=1e-8)


@pytest.mark.parametrize("loss", ["linear", "huber"])
def test_bundle_adjustment(scene, loss):
    """Lower than trf is after many more evaluations, with wrong matches among the data."""
    fit = {"jac": scene.jacobian, "loss": loss}
    res = ksdmin.least_squares(scene.residuals, scene.x0, ftol=1e-8, **fit)
    trf = scipy.optimize.least_squares(
        scene.residuals, scene.x0, x_scale="jac", tr_solver="lsmr", max_nfev=100, **fit
    )
    assert res.success
    assert res.cost < trf.cost * (1 + 1e-6)
    assert set(res.kinds) == {"gauss-newton"}


def test_by_differences_of_groups(scene, fitted):
    """The pattern alone leads to where the Jacobian leads."""
    residuals, probes = noted(scene.residuals)
    other = ksdmin.least_squares(residuals, scene.x0, jac_sparsity=scene.sparsity, ftol=1e-8)
    assert other.success
    np.testing.assert_allclose(other.cost, fitted.cost, rtol=1e-6)
    assert len(probes) < 40 * other.njev  # of 600 columns


def test_bounds_hold(scene, fitted):
    """Points that may go half of their way only."""
    upper = np.where(scene.x0 < fitted.x, (scene.x0 + fitted.x) / 2, np.inf)
    upper[: 9 * scene.cameras] = np.inf
    residuals, tried = noted(scene.residuals)
    res = ksdmin.least_squares(
        residuals, scene.x0, scene.jacobian, bounds=(-np.inf, upper), ftol=1e-6
    )
    assert all((x <= upper).all() for x in tried)
    assert res.success
    assert (res.active_mask == 1).any()
    assert fitted.cost < res.cost < np.sum(scene.residuals(scene.x0) ** 2) / 4


@pytest.mark.parametrize(
    ("problem", "kinds"),
    [
        (others.pose_graph(150), {"gauss-newton"}),
        (others.source_of_equation(14), {"gauss-newton"}),
        (others.blurred(500), {"krylov", "quasi-newton"}),
    ],
    ids=["poses", "equation", "operator"],
)
def test_other_structures(problem, kinds):
    fit = {"jac": problem.jacobian, "loss": problem.loss}
    res = ksdmin.least_squares(problem.residuals, problem.x0, **fit)
    scale = 1.0 if isinstance(problem.jacobian(problem.x0), LinearOperator) else "jac"
    trf = scipy.optimize.least_squares(
        problem.residuals, problem.x0, tr_solver="lsmr", x_scale=scale, max_nfev=100, **fit
    )
    assert res.success
    assert res.cost <= trf.cost * (1 + 1e-8)
    assert set(res.kinds) <= kinds


def test_separate_fits_at_once():
    """Blocks that share nothing: each is fitted as if it were alone."""
    t, rng = np.linspace(0, 2, 9), np.random.default_rng(0)
    a, b = rng.uniform(1, 2, 200), rng.uniform(0.5, 1.5, 200)
    y = a[:, None] * np.exp(-b[:, None] * t) + rng.normal(0, 0.01, (200, 9))

    def residuals(x):
        a, b = x.reshape(-1, 2).T
        return (a[:, None] * np.exp(-b[:, None] * t) - y).ravel()

    def jac(x):
        a, b = x.reshape(-1, 2).T
        e = np.exp(-b[:, None] * t)
        return block_diag(np.stack([e, -a[:, None] * t * e], axis=2), format="csr")

    res = ksdmin.least_squares(residuals, np.ones(400), jac)
    one = ksdmin.least_squares(lambda x: x[0] * np.exp(-x[1] * t) - y[7], [1.0, 1.0])
    assert res.success
    np.testing.assert_allclose(res.x[14:16], one.x, rtol=1e-5)


def test_units_of_variables_change_nothing(scene, fitted):
    units = 10.0 ** np.random.default_rng(0).integers(-4, 5, len(scene.x0))
    other = ksdmin.least_squares(
        lambda x: scene.residuals(x * units),
        scene.x0 / units,
        lambda x: scene.jacobian(x * units) @ diags_array(units),
        ftol=1e-8,
    )
    assert other.nfev == fitted.nfev
    np.testing.assert_allclose(other.cost, fitted.cost, rtol=1e-6)


def test_the_other_door_takes_the_same_steps(scene, fitted):
    problem = ksdmin.as_problem(residuals=scene.residuals, jac=scene.jacobian)
    res = ksdmin.minimize(problem, scene.x0, options={"ftol": 1e-8})
    assert res.success
    assert res.nit == fitted.nit
    np.testing.assert_allclose(res.fun, fitted.cost, rtol=1e-12)


def test_a_pattern_that_changes():
    """Entries that turn up later are no less part of it."""

    def residuals(x):
        return np.concatenate([x - 1, np.maximum(x[1:] + x[:-1], 0) - 2])

    def jac(x):
        on = (x[1:] + x[:-1] > 0).astype(float)
        J = csr_array(diags_array([on, on], offsets=[0, 1], shape=(399, 400)))
        J.eliminate_zeros()
        return vstack([eye_array(400), J], format="csr")

    res = ksdmin.least_squares(residuals, np.linspace(-1, 0.5, 400), jac)
    assert res.success
    np.testing.assert_allclose(res.x, 1.0, atol=1e-8)


@pytest.mark.parametrize("way", ["dense", "sparse", "iterative"])
@pytest.mark.parametrize("eliminates", [True, False])
def test_each_way_solves_the_equations(scene, way, eliminates):
    J, r = scene.jacobian(scene.x0), scene.residuals(scene.x0)
    structure = Structure(J)
    assert (len(structure.kept), structure.block) == (9 * scene.cameras, 3)
    if not eliminates:
        pattern = pattern_of(J)
        structure._arrange(pattern, np.zeros(len(pattern.sizes), dtype=bool))
    structure.way = way
    scales = 1 / np.sqrt(J.power(2).sum(0))
    q = SparseEquations(J, scales, structure).solver(1e-3, 1e-10)(r)
    A = J @ diags_array(scales)
    left = A.T @ (A @ q) + 1e-3 * q + A.T @ r
    assert np.linalg.norm(left) < 1e-8 * np.linalg.norm(A.T @ r)


def test_products_lead_to_the_same_minimum():
    """Conjugate gradients: unknowns that meet at random, too many for factors."""
    n, rng = 5_000, np.random.default_rng(0)
    pairs = rng.integers(0, n, (3 * n, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    i, j = pairs.T
    true = rng.normal(size=n)
    data = np.sin(true[i] - true[j]) + 0.01 * rng.normal(size=len(i))
    rows = np.repeat(np.arange(len(i)), 2)

    def residuals(x):
        return np.concatenate([np.sin(x[i] - x[j]) - data, 0.1 * (x - true)])

    def jac(x):
        slope = np.cos(x[i] - x[j])
        entries = np.stack([slope, -slope], axis=1).ravel()
        J = csr_array((entries, (rows, pairs.ravel())), shape=(len(i), n))
        return vstack([J, 0.1 * eye_array(n)], format="csr")

    x0 = true + 0.1 * rng.normal(size=n)
    assert Structure(csr_array(jac(x0))).way == "iterative"
    res = ksdmin.least_squares(residuals, x0, jac)
    assert res.success
    assert np.abs(jac(res.x).T @ residuals(res.x)).max() < 1e-6


def test_many_columns_in_one_row():
    """A sum of 2,000 variables beside some that have a row each."""
    n = 2000
    J = scipy.sparse.csr_array(scipy.sparse.block_diag([np.ones((1, n)), scipy.sparse.eye(5)]))
    b = np.arange(6.0)

    def fun(x):
        return J @ x - b + 0.01 * np.r_[0, x[n:] ** 2]

    def jac(x):
        return J + scipy.sparse.csr_array(
            (np.r_[np.zeros(n), 0.02 * x[n:]], J.indices, J.indptr), shape=J.shape
        )

    res = ksdmin.least_squares(fun, np.zeros(n + 5), jac)
    assert res.cost < 1e-20


def test_equations_on_a_fine_grid_take_few_more_steps():
    """u'' = -3 exp(u), u = 0 at both ends: condition 1e6, whose square is near rounding."""
    n = 2000
    h = 1 / (n + 1)

    def residuals(u):
        inside = np.pad(u, 1)
        return (inside[2:] - 2 * u + inside[:-2]) / h**2 + 3 * np.exp(u)

    def jac(u):
        beside = np.full(n - 1, h**-2)
        inside = 3 * np.exp(u) - 2 / h**2
        return diags_array([beside, inside, beside], offsets=[-1, 0, 1]).tocsr()

    res = ksdmin.least_squares(residuals, np.zeros(n), jac=jac)
    assert res.success
    assert res.cost < 1e-12
    assert res.nfev < 60  # 420 with a damping that is never less than n roundings
