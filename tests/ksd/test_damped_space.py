"""Damped Gauss-Newton directions of a Jacobian, and runs that take them."""

import copy

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn

import ksdmin
from ksdmin import _solver
from ksdmin._ksd.damped_space import ByMatrix, ByRows
from ksdmin._problem.arrays import Space
from ksdmin._problem.protocol import Jacobian

RNG = np.random.default_rng(0)
DAMPINGS = [1e-6, 1e-3, 1.0]


def rows(kind, shape):
    """A Jacobian and residuals, in numpy or torch."""
    R, r = RNG.standard_normal(shape), RNG.standard_normal(shape[0])
    return (R, r) if kind == "numpy" else (torch.tensor(R), torch.tensor(r))


def expected(R, g, penalty, damping):
    R, g = np.asarray(R), np.asarray(g)
    return -np.linalg.solve(R.T @ R + (penalty + damping) * np.eye(R.shape[1]), g)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("penalty", [0.0, 0.1])
@pytest.mark.parametrize("other_samples", [False, True])
def test_directions_by_rows(kind, penalty, other_samples):
    R, r = rows(kind, (6, 20))
    g = r @ R + penalty * R[0] + (R[1] ** 2 if other_samples else 0)
    space = Space(g)
    for damping, d in ByRows(space, Jacobian(R, r, penalty), g, None).directions(DAMPINGS):
        wanted = expected(R, g, penalty, damping)
        assert np.linalg.norm(np.asarray(d) - wanted) <= 1e-8 * np.linalg.norm(wanted)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_directions_by_the_matrix(kind):
    R, r = rows(kind, (30, 8))
    g = r @ R
    found = ByMatrix(Space(g), R.T @ R, g, None).directions(DAMPINGS)
    assert [damping for damping, _ in found] == DAMPINGS
    for damping, d in found:
        np.testing.assert_allclose(d, expected(R, g, 0.0, damping), rtol=1e-8)


@pytest.mark.parametrize("shape", [(6, 20), (30, 8)], ids=["rows", "matrix"])
def test_variables_that_are_held_do_not_move(shape):
    R, r = rows("numpy", shape)
    free = np.ones(shape[1])
    free[2] = 0.0
    g = free * (r @ R)
    space = Space(g)
    by_rows = ByRows(space, Jacobian(R, r), g, free)
    by_matrix = ByMatrix(space, R.T @ R, g, free)
    for one, other in zip(by_rows.directions([0.1]), by_matrix.directions([0.1]), strict=True):
        np.testing.assert_allclose(one[1], other[1], atol=1e-10)
        assert one[1][2] == other[1][2] == 0


def test_products_are_those_of_the_matrix():
    R, r = rows("numpy", (6, 20))
    space, V = Space(R[0]), RNG.standard_normal((3, 20))
    H = R.T @ R + 0.3 * np.eye(20)
    np.testing.assert_allclose(ByRows(space, Jacobian(R, r, 0.3), R[0], None).products(V), V @ H)
    np.testing.assert_allclose(ByMatrix(space, H, R[0], None).products(V), V @ H)


def test_a_damping_that_rounding_hides_is_left_out():
    R = np.ones((9, 9))
    assert not ByMatrix(Space(R[0]), R * 1e8, R[0], None).directions([1e-16])


def test_what_lies_in_the_span_of_other_rows_is_left_out():
    V = Space(np.ones(3)).orthonormal(np.array([[1.0, 0, 0], [2.0, 0, 0], [1.0, 1.0, 0]]))
    np.testing.assert_allclose(np.abs(V), [[1, 0, 0], [0, 1, 0]], atol=1e-12)


# Runs


def net(hidden=40, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        return nn.Sequential(*layers).double()


def curve(samples=60, hidden=40, **given):
    """A small net, fitted to a wave: fewer residuals than parameters, or more."""
    x = torch.linspace(-1, 1, samples, dtype=torch.float64)[:, None]
    return ksdmin.from_torch(net(hidden), nn.MSELoss(), (x, torch.sin(4 * x)), **given)


OPTIONS = {"maxiter": 15, "gtol": 1e-9}
KRYLOV = {**OPTIONS, "without": ["exact_space"]}


@pytest.mark.parametrize("samples", [60, 300], ids=["by rows", "by the matrix"])
def test_a_net_is_fitted_closer_than_with_krylov_spaces(samples):
    exact = ksdmin.minimize(curve(samples), rng=0, options=OPTIONS)
    krylov = ksdmin.minimize(curve(samples), rng=0, options=KRYLOV)
    assert exact.fun < 0.1 * krylov.fun
    assert exact.history["dim"].max() <= 9
    assert set(exact.history["size_B"]) == {samples}


def test_it_repeats_itself():
    first, second = (ksdmin.minimize(curve(), rng=0, options=OPTIONS) for _ in range(2))
    np.testing.assert_array_equal(first.x, second.x)


def test_every_step_can_be_replayed(monkeypatch):
    own = _solver.METHODS["ksd"]

    def twice(run, state):
        first, second = own.step(run, state), own.step(run, state)
        np.testing.assert_array_equal(first.here.x, second.here.x)
        assert first.rules.damped_space == second.rules.damped_space
        return second

    monkeypatch.setitem(_solver.METHODS, "ksd", own._replace(step=twice))
    ksdmin.minimize(curve(), rng=0, options=OPTIONS)


def test_a_run_goes_on_from_a_file(tmp_path):
    whole = ksdmin.minimize(curve(), rng=0, options=OPTIONS)
    solver = ksdmin.Solver(curve(), rng=0, options=OPTIONS)
    for info in solver:
        if info.nit == 6:
            break
    solver.save(tmp_path / "run")
    again = ksdmin.Solver.load(tmp_path / "run", curve())
    for _ in again:
        pass
    np.testing.assert_array_equal(again.result().x, whole.x)


def test_bounds_hold():
    problem = curve()
    n = len(problem.x0)
    bounds = [(-0.5, 0.5)] * n
    start = problem.x0.clamp(-0.5, 0.5)
    exact, krylov = (
        ksdmin.minimize(problem, start, bounds=bounds, rng=0, options=options)
        for options in (OPTIONS, KRYLOV)
    )
    assert float(exact.x.abs().max()) <= 0.5
    assert exact.fun <= 1.01 * krylov.fun


def test_a_penalty_is_part_of_it():
    res = ksdmin.minimize(curve(l2=1e-4), rng=0, options={**OPTIONS, "maxiter": 60})
    assert res.fun < 0.01
    assert res.history["gradient_norm"][-1] < 1e-4


def test_the_papers_algorithm_and_small_memory_keep_krylov_spaces():
    for options in (ksdmin.PAPER | {"maxiter": 3}, {"memory_budget": 1e5, "maxiter": 3}):
        res = ksdmin.minimize(curve(), rng=0, options=options)
        assert res.history["size_B"][0] < 60


def test_sets_that_the_user_asks_for_stay():
    sets = ksdmin.Subsets(60, 1.0, 20, 20)
    res = ksdmin.minimize(curve(), subsets=sets, rng=0, options={"maxiter": 2})
    assert (res.history["size_B"][0], res.history["size_C"][0]) == (20, 20)


def test_blocks_of_different_residuals_take_it_together():
    model = net()
    x = torch.linspace(-1, 1, 50, dtype=torch.float64)[:, None]
    ends = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)

    def slope(model, x):
        x = x.requires_grad_()
        return torch.autograd.grad(model(x).sum(), x, create_graph=True)[0] - torch.cos(x)

    blocks = [(slope, x, 1.0), (lambda model, x: model(x) - torch.sin(x), ends, 10.0)]
    problem = ksdmin.from_torch(model, residuals=blocks, l2=1e-9)
    assert problem.traits.has_jacobian
    assert [block._matrix._by_sample for block in problem._blocks] == [False, True]
    J, g = problem.jacobian(problem.x0), problem.value_and_gradient(problem.x0)[1]
    torch.testing.assert_close(J.residuals @ J.rows + J.penalty * problem.x0, g)
    torch.testing.assert_close(
        J.rows.T @ J.rows + J.penalty * torch.eye(len(g)), problem.matrix(problem.x0)
    )
    res = ksdmin.minimize(problem, rng=0, options=OPTIONS)
    assert res.fun < 1e-5
    assert res.history["dim"].max() <= 9


def test_time_is_up_within_an_iteration():
    res = ksdmin.minimize(curve(), rng=0, options={"maxtime": 1e-9})
    assert res.status == ksdmin.Status.MAXTIME


def test_a_jacobian_that_is_not_finite_ends_the_run_with_its_status():
    problem = curve()
    broken = copy.copy(problem)
    broken.matrix = lambda x, idx: torch.full((len(x), len(x)), torch.nan, dtype=x.dtype)
    broken.jacobian = lambda x, idx: Jacobian(
        torch.full((60, len(x)), torch.nan, dtype=x.dtype), torch.ones(60, dtype=x.dtype)
    )
    res = ksdmin.minimize(broken, rng=0, options=OPTIONS)
    assert res.status == ksdmin.Status.NOT_FINITE


def least_squares(n=150, rows=100):
    A = np.random.default_rng(1).standard_normal((rows, n)) / n**0.5

    def residuals(x):
        return np.tanh(A @ x) - 0.3

    def jac(x):
        return (1 - np.tanh(A @ x) ** 2)[:, None] * A

    return residuals, jac, n


def test_residuals_with_a_dense_jacobian_take_it():
    residuals, jac, n = least_squares()
    problem = ksdmin.as_problem(residuals=residuals, jac=jac)
    res = ksdmin.minimize(problem, np.ones(n), options={"gtol": 1e-10})
    assert res.success
    assert res.fun < 1e-15
    assert (res.history["dim"][1:6] <= 9).all()


def test_residuals_with_a_sparse_jacobian_do_not():
    residuals, jac, n = least_squares()
    problem = ksdmin.as_problem(residuals=residuals, jac=lambda x: csr_array(jac(x)))
    res = ksdmin.minimize(problem, np.ones(n))
    assert res.success
    assert res.history["dim"].max() > 9
