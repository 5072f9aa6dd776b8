"""Damped Gauss-Newton steps, and runs that take them."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn

import ksdmin
from ksdmin._ksd.gauss_newton import GaussNewton
from ksdmin._problem.arrays import Space
from ksdmin._problem.counting import CheckedProblem
from ksdmin._problem.protocol import Jacobian
from tests.nets import tanh_net

RNG = np.random.default_rng(0)
SHAPES = pytest.mark.parametrize("shape", [(6, 20), (30, 8)], ids=["few rows", "few unknowns"])


def rows(kind, shape):
    """A Jacobian and residuals, in numpy or torch."""
    R, r = RNG.standard_normal(shape), RNG.standard_normal(shape[0])
    return (R, r) if kind == "numpy" else (torch.tensor(R), torch.tensor(r))


def equations(R, r, penalty, g, free=None):
    own = R.copy() if isinstance(R, np.ndarray) else R.clone()
    return GaussNewton(Space(g), Jacobian(own, r, penalty), g, free)


def expected(R, g, penalty, damping):
    """By a dense solver: the damping follows the columns' lengths where these are all known."""
    R, g = np.asarray(R), np.asarray(g)
    alike = np.any(penalty) or len(R) < len(g)
    D = np.ones(len(g)) if alike else np.linalg.norm(R, axis=0)
    return -np.linalg.solve(R.T @ R + np.diag(penalty + damping * D), g)


@SHAPES
@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("penalty", [0.0, 0.1, "of some variables"])
@pytest.mark.parametrize("more", [0.0, 1.0], ids=["", "with a remainder"])
def test_the_step(kind, shape, penalty, more):
    R, r = rows(kind, shape)
    of_each = penalty
    if penalty == "of some variables":
        of_each = np.where(np.arange(shape[1]) % 3, 0.0, 0.1)
        penalty = of_each if kind == "numpy" else torch.tensor(of_each)
    g = r @ R + (penalty + more) * R[0]
    at, penalty = equations(R, r, penalty, g), of_each
    for damping in (1e-6, 1e-3, 1.0):
        d, wanted = np.asarray(at.solver(damping)(r)), expected(R, g, penalty, damping)
        assert np.linalg.norm(d - wanted) <= 1e-8 * np.linalg.norm(wanted)
        np.testing.assert_allclose(at.linear(at.solver(damping)(r)), np.asarray(R) @ wanted)


def test_a_damping_that_rounding_hides_has_no_step():
    R, r = 1e4 * np.ones((9, 9)), np.ones(9)
    assert equations(R, r, 0.0, r @ R).solver(1e-30) is None


def test_a_variable_without_effect_stays():
    R, r = rows("numpy", (30, 8))
    R[:, 3] = 0.0
    d = equations(R, r, 0.0, r @ R).solver(1e-3)(r)
    assert np.isfinite(d).all()
    assert d[3] == 0


# Problems of one's own


def parabola(x):
    """Residuals along a bent valley, whose floor is x_2 = x_1^2."""
    return np.array([30 * (x[1] - x[0] ** 2), 1 - x[0]])


def slopes_of_parabola(x):
    return np.array([[-60 * x[0], 30.0], [-1.0, 0.0]])


def test_a_problem_of_ones_own_may_do_without_residuals_elsewhere():
    class Own:
        traits = ksdmin.Traits(has_jacobian=True, rows_per_sample=2)
        x0 = np.array([-1.2, 1.0])

        def value(self, x, idx):
            return parabola(x) @ parabola(x) / 2

        def value_and_gradient(self, x, idx):
            return self.value(x, idx), slopes_of_parabola(x).T @ parabola(x)

        def curvature(self, x, idx):
            J = slopes_of_parabola(x)
            return lambda v: J.T @ (J @ v)

        def jacobian(self, x, idx):
            return ksdmin.Jacobian(slopes_of_parabola(x), parabola(x))

    res = ksdmin.minimize(Own(), options={"gtol": 1e-9})
    assert res.success
    assert res.fun < 1e-15


def test_residuals_elsewhere_of_the_wrong_shape_are_refused():
    problem = ksdmin.as_problem(residuals=parabola, jac=slopes_of_parabola)
    broken = copy.copy(problem)
    broken.jacobian = lambda x, idx: ksdmin.Jacobian(
        slopes_of_parabola(x), parabola(x), at=lambda y: (0.0, np.ones(3))
    )
    checked = CheckedProblem(broken, Space(np.ones(2)))
    with pytest.raises(ValueError, match=r"Jacobian.at returned residuals of shape \(3,\)"):
        checked.jacobian(np.ones(2), slice(None)).at(np.ones(2))


# Runs


def curve(samples=60, hidden=40, **given):
    """A small net, fitted to a wave: fewer residuals than parameters, or more."""
    x = torch.linspace(-1, 1, samples, dtype=torch.float64)[:, None]
    return ksdmin.from_torch(
        tanh_net(1, hidden, 1).double(), nn.MSELoss(), (x, torch.sin(4 * x)), **given
    )


OPTIONS = {"maxiter": 15, "gtol": 1e-9}
KRYLOV = {**OPTIONS, "without": ["newton", "gauss-newton"]}


@pytest.mark.parametrize("samples", [60, 300], ids=["few rows", "few unknowns"])
def test_a_net_is_fitted_closer_than_with_krylov_spaces(samples):
    exact = ksdmin.minimize(curve(samples), rng=0, options=OPTIONS)
    krylov = ksdmin.minimize(curve(samples), rng=0, options=KRYLOV)
    assert exact.fun < 0.1 * krylov.fun
    assert exact.history["dim"].max() == 1
    assert set(exact.history["size_B"]) == {samples}


def test_no_step_saturates_a_deep_net():
    net = tanh_net(*[8] * 9, 1).double()
    X = torch.tensor(np.random.default_rng(1).standard_normal((200, 8)))
    y = 3 * torch.tanh(X[:, :3].sum(1, keepdim=True))
    problem = ksdmin.from_torch(net, nn.MSELoss(), (X, y))
    path = [problem.x0]
    res = ksdmin.minimize(problem, rng=0, callback=path.append, options={"maxiter": 20})
    assert all((b - a).norm() <= a.norm() for a, b in itertools.pairwise(path))
    assert res.fun < 1e-3  # it would be 0.04


def test_every_step_can_be_replayed(replayed):
    states = replayed(curve(), rng=0, options=OPTIONS)
    assert all(state.rules.gauss_newton.last.value > 0 for state in states)


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
    assert res.fun < 2.15e-3  # 2.13e-3 after 200 iterations, with Krylov spaces too
    assert res.history["gradient_norm"].min() < 1e-4


def test_the_papers_algorithm_and_small_memory_keep_krylov_spaces():
    for options in (ksdmin.PAPER | {"maxiter": 3}, {"memory_budget": 1e5, "maxiter": 3}):
        res = ksdmin.minimize(curve(), rng=0, options=options)
        assert res.history["size_B"][0] < 60


def regression(samples, width):
    """A net whose Jacobian costs some gradients, and its equations more."""
    x = torch.randn(samples, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    net = tanh_net(10, width, width, 1).double()
    return ksdmin.from_torch(net, nn.MSELoss(), (x, x[:, :1].sin()))


@pytest.mark.parametrize(
    ("problem", "whole"),
    [(curve(300, 5), True), (regression(2000, 10), True), (regression(2000, 40), False)],
    ids=["few gradients", "few unknowns", "many unknowns"],
)
def test_a_run_begins_with_these_steps_only_where_they_cost_little(problem, whole):
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 1})
    assert bool(res.history["size_B"][0] == problem.subsets.n) is whole
    assert bool(res.history["kind"][1] == "gauss-newton") is whole


@pytest.mark.parametrize("l2", [1e-9, {"2": 1e-9}], ids=["of all", "of some parameters"])
def test_blocks_of_different_residuals_take_it_together(l2):
    model = tanh_net(1, 40, 1).double()
    x = torch.linspace(-1, 1, 50, dtype=torch.float64)[:, None]
    ends = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)

    def slope(model, x):
        x = x.requires_grad_()
        return torch.autograd.grad(model(x).sum(), x, create_graph=True)[0] - torch.cos(x)

    blocks = [(slope, x, 1.0), (lambda model, x: model(x) - torch.sin(x), ends, 10.0)]
    problem = ksdmin.from_torch(model, residuals=blocks, l2=l2)
    assert problem.traits.has_jacobian
    assert [block._rows.way for block in problem._blocks] == ["uses", "vmap"]
    J, g = problem.jacobian(problem.x0), problem.value_and_gradient(problem.x0)[1]
    torch.testing.assert_close(J.residuals @ J.rows + J.penalty * problem.x0, g)
    v, product = torch.cos(torch.arange(len(g), dtype=g.dtype)), problem.curvature(problem.x0)
    torch.testing.assert_close(v @ J.rows.T @ J.rows + J.penalty * v, product(v))
    res = ksdmin.minimize(problem, rng=0, options=OPTIONS)
    assert res.fun < 1e-5
    assert res.history["dim"].max() == 1


def test_where_the_jacobian_is_not_finite_products_serve():
    broken = copy.copy(curve(precond="diagonal"))
    broken.jacobian = lambda x, idx: Jacobian(
        torch.full((60, len(x)), torch.nan, dtype=x.dtype), torch.ones(60, dtype=x.dtype)
    )
    res = ksdmin.minimize(broken, rng=0, options=OPTIONS)
    assert res.fun < 0.01
    assert res.history["dim"].max() > 1
