"""The problems of examples/physics: their residuals vanish at the solution, and only there."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.func import jvp
from torch.nn.utils import parameters_to_vector
from torch.utils._pytree import tree_leaves, tree_map

from examples.physics import burgers, inverse_diffusion, periodic_flows
from examples.physics.burgers_reference import cole_hopf, solved
from examples.physics.experiment import grid, uniform
from examples.physics.experiments import EXPERIMENTS
from examples.physics.periodic_net import PeriodicNet
from examples.physics.tanh_net import TanhNet

# Said by torch itself, of its own forward-mode differentiation.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

RUNS = sorted((Path(burgers.__file__).parent / "results").glob("*.json"))


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

    def with_laplacian(self, points, axes):
        along = [self._along(axis, 2, points) for axis in range(points.shape[1])]
        return torch.stack([slope for slope, _ in along]), sum(along[axis][1] for axis in axes)


def rows(data, count):
    return tree_map(lambda part: part[:count], data)


# Their solutions are those of a spectral method, not functions that can be differentiated in time.
SOLVED = ["burgers-periodic", "kdv", "kuramoto-sivashinsky"]


@pytest.mark.parametrize("small", [False, True], ids=["full", "small"])
@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name not in SOLVED])
def test_residuals_vanish_at_the_solution(name, small):
    setting = EXPERIMENTS[name].make(0, small)
    solution = Known(setting.exact)
    for number, (r, data, weight) in enumerate(setting.residuals):
        found = r(solution, rows(data, 200))
        assert found.shape[0] == min(200, len(tree_leaves(data)[0]))
        assert weight > 0
        if name == "inverse-diffusion" and number == 1:  # measured, with noise
            assert found.std() == pytest.approx(inverse_diffusion.NOISE, rel=0.3)
        elif name.startswith("burgers") and number == 0:  # by terms that are up to 150
            assert found.abs().max() < 1e-8
        else:
            assert found.abs().max() < 1e-9
        other = r(setting.net, rows(data, 200))
        assert other.abs().mean() > 1e-3


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_nets_are_those_of_the_committed_runs(path):
    setting = EXPERIMENTS[path.stem].make(0, False)
    size = sum(p.numel() for p in setting.net.parameters())
    runs = json.loads(path.read_text())
    assert {run["parameters"] for run in runs if not run["config"]["small"]} == {size}
    assert (setting.bounds is not None) == EXPERIMENTS[path.stem].bounded


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_seed_says_all_and_another_one_says_something_else(name):
    one, same, other = (EXPERIMENTS[name].make(seed, True) for seed in (0, 0, 1))
    for setting, equal in ((same, True), (other, False)):
        start, there = (parameters_to_vector(s.net.parameters()) for s in (one, setting))
        assert torch.equal(start, there) == equal
        points, others = (tree_leaves(s.residuals[0][1])[0] for s in (one, setting))
        assert torch.equal(points, others) == equal


@pytest.mark.parametrize("orders", [(2, 1), (1, 2), (2, 2), (0, 1), (1, 0), (0, 0)])
def test_derivatives_of_a_net_are_those_of_nested_forward_mode(orders):
    net = TanhNet(2, 7, 5, 1, seed=3).double()
    points = uniform(((-1.0, 1.0), (0.0, 2.0)), 9, 0)
    found = net.derivatives(points, orders)
    expected = Known(net).derivatives(points, orders)
    assert len(found) == len(expected) == 1 + sum(orders)
    for axes in ((0, 1), (1,)):
        found, expected = (
            (*found, *net.with_laplacian(points, axes)),
            (*expected, *Known(net).with_laplacian(points, axes)),
        )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


def test_a_periodic_net_has_its_period_and_its_derivatives():
    net = PeriodicNet(-1.0, 2.0, (0.5, 0.75), 7, 5, seed=3).double()
    points = uniform(((-1.0, 1.0), (0.5, 0.75)), 9, 0).requires_grad_()
    torch.testing.assert_close(net(points), net(points + torch.tensor([2.0, 0.0])))
    slope, along_t = net(points), None
    expected = [slope]
    for _ in range(4):
        (slopes,) = torch.autograd.grad(slope.sum(), points, create_graph=True)
        along_t = slopes[:, 1:] if along_t is None else along_t
        slope = slopes[:, :1]
        expected.append(slope)
    for order in range(1, 5):
        found = net.along_x(points, order)
        torch.testing.assert_close(list(found), [along_t, *expected[: order + 1]])


@pytest.mark.parametrize(
    ("viscosity", "points", "step", "tolerance"),
    [
        pytest.param(0.1 / math.pi, 256, 1e-3, 1e-9, id="small"),
        pytest.param(
            *(burgers.VISCOSITY[False], 2048, 5e-4, 1e-6), id="full", marks=pytest.mark.slow
        ),
    ],
)
def test_two_solutions_of_burgers_equation_agree(viscosity, points, step, tolerance):
    times = [0.1, 0.5, 1.0]
    at = torch.cartesian_prod(torch.linspace(-1, 1, 101).double(), torch.tensor(times).double())
    other = solved(viscosity, points=points, step=step)(at)
    assert float((cole_hopf(viscosity, at) - other).abs().max()) < tolerance


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flow", "tolerance"),
    [(periodic_flows.kdv_solution(False), 1e-10), (periodic_flows.ks_solution(False), 1e-6)],
    ids=["kdv", "ks"],
)
def test_references_do_not_depend_on_step_and_waves(flow, tolerance):
    points = grid(((flow.left, flow.left + flow.length), (0.0, 1.0)), 64, 3)
    coarser = replace(flow, step=1.5 * flow.step, points=flow.points + 64)
    difference = (flow(points) - coarser(points)).norm() / flow(points).norm()
    assert difference < tolerance


def test_a_slab_begins_where_the_last_one_ends():
    first = EXPERIMENTS["kuramoto-sivashinsky"].make(0, True)
    second = first.following()
    assert second.following is None
    assert first.share == second.share == 0.5
    start, values = second.residuals[1][1]
    assert torch.equal(first.net(start).detach(), values)
    early, late = torch.tensor([[1.0, 0.02]]).double(), torch.tensor([[1.0, 0.08]]).double()
    assert torch.equal(second.prediction(early), first.net(early))
    assert torch.equal(second.prediction(late), second.net(late))


def test_redrawn_points_are_where_the_residuals_are():
    setting = EXPERIMENTS["burgers-redrawn"].make(0, True)
    again = setting.following()
    assert again.following is None
    assert again.net is setting.net
    assert again.residuals[1:] == setting.residuals[1:]
    equation, uniform_points, _ = setting.residuals[0]
    mean_square = lambda points: equation(setting.net, points).square().mean()  # noqa: E731
    assert mean_square(again.residuals[0][1]) > 1.1 * mean_square(uniform_points)
    assert torch.equal(setting.following().residuals[0][1], again.residuals[0][1])
