"""The problems of examples/physics: their residuals vanish at the solution, and only there."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import jvp
from torch.nn.utils import parameters_to_vector
from torch.utils._pytree import tree_leaves, tree_map

from examples.physics import burgers, evolution, inverse_diffusion, poisson
from examples.physics.burgers_reference import cole_hopf, spectral
from examples.physics.experiment import grid, solution_error, uniform
from examples.physics.experiments import EXPERIMENTS
from examples.physics.tanh_net import TanhNet

# Said by torch itself, of its own forward-mode differentiation.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

PARAMETERS = {
    "convection": 81_201,
    "reaction": 81_201,
    "wave": 81_201,
    "poisson-257": 257,
    "poisson-9873": 9_873,
    "poisson-116097": 116_097,
    "burgers": 1_341,
    "precision-fit": 481,
    "inverse-diffusion": 5_302,
    "helmholtz-4096": 12_737,
    "helmholtz-50000": 12_737,
    "helmholtz-200000": 12_737,
    "dispersive-12737": 12_737,
    "dispersive-198401": 198_401,
    "dispersive-999361": 999_361,
}
POINTS = {
    "convection": [10_000, 257, 101],
    "reaction": [10_000, 257, 101],
    "wave": [10_000, 257, 101],
    "poisson-257": [900, 120],
    "poisson-9873": [900, 120],
    "poisson-116097": [900, 120],
    "burgers": [10_000, 200, 100],
    "precision-fit": [100_000],
    "inverse-diffusion": [5_000, 500, 200],
    "helmholtz-4096": [4096, 256],
    "helmholtz-50000": [50_000, 892],
    "helmholtz-200000": [200_000, 1788],
    "dispersive-12737": [8192, 270],
    "dispersive-198401": [8192, 270],
    "dispersive-999361": [8192, 270],
}


class Known(nn.Module):
    """A function in place of a net; its derivatives by nested forward mode."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.temperature = self  # as the rod of the inverse problem has it
        self.conductivity = torch.tensor(inverse_diffusion.CONDUCTIVITY, dtype=torch.float64)

    def forward(self, points):
        return self.function(points)

    def derivatives(self, points, orders):
        along = [self._along(axis, order, points) for axis, order in enumerate(orders)]
        firsts = [found[0] for found in along if found]
        seconds = [found[1] for found in along if len(found) == 2]
        return self(points), *firsts, *seconds

    def _along(self, axis, order, points):
        unit = torch.zeros_like(points)
        unit[:, axis] = 1

        def slope(points):
            return jvp(self.function, (points,), (unit,))[1]

        both = jvp(slope, (points,), (unit,))
        return both[:order]


def rows(data, count):
    return tree_map(lambda part: part[:count], data)


@pytest.mark.parametrize("small", [False, True], ids=["full", "small"])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_residuals_vanish_at_the_solution(name, small):
    setting = EXPERIMENTS[name].make(0, small)
    solution = Known(setting.exact)
    for number, (r, data, weight) in enumerate(setting.residuals):
        found = r(solution, rows(data, 200))
        assert found.shape[0] == min(200, len(tree_leaves(data)[0]))
        assert weight > 0
        if name == "inverse-diffusion" and number == 1:  # measured, with noise
            assert found.std() == pytest.approx(inverse_diffusion.NOISE, rel=0.3)
        elif name == "burgers" and number == 0:  # by terms that are up to 150
            assert found.abs().max() < 1e-8
        else:
            assert found.abs().max() < 1e-9
        other = r(setting.net, rows(data, 200))
        assert other.abs().mean() > 1e-3


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_sizes_are_the_published_ones(name):
    setting = EXPERIMENTS[name].make(0, False)
    assert sum(p.numel() for p in setting.net.parameters()) == PARAMETERS[name]
    assert [len(tree_leaves(data)[0]) for _, data, _ in setting.residuals] == POINTS[name]
    assert (setting.bounds is not None) == EXPERIMENTS[name].bounded


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_seed_says_all_and_another_one_says_something_else(name):
    one, same, other = (EXPERIMENTS[name].make(seed, True) for seed in (0, 0, 1))
    for setting, equal in ((same, True), (other, False)):
        start, there = (parameters_to_vector(s.net.parameters()) for s in (one, setting))
        assert torch.equal(start, there) == equal
        points, others = (tree_leaves(s.residuals[0][1])[0] for s in (one, setting))
        assert torch.equal(points, others) == equal


def test_the_objective_is_the_published_one():
    """The terms of the papers, written out for one of each kind."""
    setting = EXPERIMENTS["wave"].make(0, True)
    net, (inner, start, ends) = setting.net, [data for _, data, _ in setting.residuals]
    _, _, _, u_xx, u_tt = net.derivatives(inner, (2, 2))
    u, u_t = net.derivatives(start, (0, 1))
    mse = lambda value: value.square().mean()  # noqa: E731
    expected = mse(u_tt - 4 * u_xx) + mse(u - evolution.two_waves(2, start)) + mse(u_t)
    expected = expected + mse(net(ends[0])) + mse(net(ends[1]))
    problem = setting.problem()
    assert problem.value(problem.x0) == pytest.approx(float(expected.detach()), rel=1e-12)

    setting = EXPERIMENTS["poisson-257"].make(0, True)
    (_, inner, _), (_, border, _) = setting.residuals
    *_, u_xx, u_yy = setting.net.derivatives(inner, (2, 2))
    expected = mse(u_xx + u_yy + 2 * math.pi**2 * poisson.bump(inner)) / 2
    expected = expected + mse(setting.net(border)) / 2
    problem = setting.problem()
    assert problem.value(problem.x0) == pytest.approx(float(expected.detach()), rel=1e-12)


def test_points_of_the_grid_lie_where_they_should():
    points = evolution.points_of(evolution.CIRCLE, evolution.FULL, 0)
    x, t = points.inner.T
    assert 0 < x.min()
    assert x.max() < 2 * math.pi
    assert t.min() > 0
    assert len(torch.unique(points.inner, dim=0)) == 10_000
    assert bool((points.start[:, 1] == 0).all())
    assert torch.equal(points.ends[0][:, 1], points.ends[1][:, 1])
    on_border = poisson.border_points(120, 0)
    assert bool(((on_border == 0) | (on_border == 1)).any(dim=1).all())


@pytest.mark.parametrize("orders", [(2, 1), (1, 2), (2, 2), (0, 1), (1, 0), (0, 0)])
def test_derivatives_of_a_net_are_those_of_nested_forward_mode(orders):
    net = TanhNet(2, 7, 5, 1, seed=3).double()
    points = uniform(((-1.0, 1.0), (0.0, 2.0)), 9, 0)
    found = net.derivatives(points, orders)
    expected = Known(net).derivatives(points, orders)
    assert len(found) == len(expected) == 1 + sum(orders)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


def test_making_a_net_leaves_torchs_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    TanhNet(1, 2, 1, seed=5)
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize(
    ("viscosity", "points", "step", "tolerance"),
    [(0.1 / math.pi, 256, 1e-3, 1e-9), (burgers.VISCOSITY[False], 2048, 5e-4, 1e-6)],
    ids=["small", "full"],
)
def test_two_solutions_of_burgers_equation_agree(viscosity, points, step, tolerance):
    times = [0.1, 0.5, 1.0]
    solved = spectral(viscosity, times, points=points, step=step)
    x = torch.linspace(-1, 1, points + 1, dtype=torch.float64)[:-1]
    for time, row in zip(times, solved, strict=True):
        at = torch.stack([x, torch.full_like(x, time)], dim=1)
        assert np.abs(cole_hopf(viscosity, at)[:, 0].numpy() - row).max() < tolerance


def test_the_closed_form_is_right_where_the_shock_is_and_at_the_start():
    viscosity = burgers.VISCOSITY[False]
    start = torch.tensor([[0.3, 0.0], [-0.7, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(cole_hopf(viscosity, start), -torch.sin(math.pi * start[:, :1]))
    near = torch.tensor([[0.0, 1.0], [1e-2, 1.0], [-1e-2, 1.0]], dtype=torch.float64)
    u = cole_hopf(viscosity, near)[:, 0]
    assert abs(u[0]) < 1e-12
    assert float(u[1]) == pytest.approx(-float(u[2]), rel=1e-12)
    assert u[1] < -0.5


def test_errors_are_relative_or_not():
    points = grid(((0.0, 1.0),), 11)
    error = {r: solution_error(lambda x: 2 + 0 * x, points, relative=r) for r in (True, False)}
    net = nn.Linear(1, 1).double()
    nn.init.zeros_(net.weight)
    nn.init.constant_(net.bias, 3.0)
    assert error[False](net) == pytest.approx(1.0)
    assert error[True](net) == pytest.approx(0.5)


def test_bounds_are_of_one_parameter_only():
    setting = EXPERIMENTS["inverse-diffusion"].make(0, True)
    low, high = setting.box()
    names = [name for name, p in setting.net.named_parameters() for _ in range(p.numel())]
    at = names.index("conductivity")
    assert (float(low[at]), float(high[at])) == inverse_diffusion.BOUNDS
    assert int(torch.isfinite(low).sum()) == int(torch.isfinite(high).sum()) == 1
