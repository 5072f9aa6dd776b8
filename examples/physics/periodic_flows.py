"""Korteweg and de Vries' equation, and Kuramoto and Sivashinsky's, as Webb et al. (2026) have them.

u_t + u u_x + 0.022^2 u_xxx = 0 from a cosine, which breaks into solitons, and
u_t + a u u_x + b u_xx + c u_xxxx = 0, a = 100/16, b = 100/16^2, c = 100/16^4, whose small
disturbances grow by exp(25 t). Both are periodic, and so is the net (arXiv
2607.02194). So is the solution of Burgers' equation.

One net for all times would have to fit the late ones before it knows the early ones. So the second
one is solved slab by slab of time, by a net each, which begins where the one before ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from examples.physics.burgers import ROUNDS, VISCOSITY
from examples.physics.burgers_reference import cole_hopf, solved
from examples.physics.experiment import Setting, Solution, grid, solution_error, uniform
from examples.physics.periodic_net import PeriodicNet
from examples.physics.redrawn import redrawn
from examples.physics.spectral import PI, Equation

BURGERS_HIDDEN = {False: (60, 60, 60, 60), True: (12, 12)}
BURGERS_GRID = {False: (256, 101), True: (64, 21)}
SIZES = {False: (2**15, 2**12), True: (400, 60)}  # inside, start; of small
WEIGHT = 100.0  # of the start
DISPERSION = {False: 0.022**2, True: 0.2**2}
KDV_HIDDEN = {False: (60, 60, 60, 60), True: (12, 12)}
KDV_GRID = {False: (512, 201), True: (64, 21)}
KS = 100 / 16, 100 / 16**2, 100 / 16**4
KS_HIDDEN = {False: (70, 70, 70, 70), True: (12, 12)}
KS_GRID = {False: (512, 501), True: (64, 21)}
# The later, the shorter, as there the solution changes fastest
KS_SLABS = {False: (0.0, *(1 - (k / 8) ** 2 for k in range(7, -1, -1))), True: (0.0, 0.05, 0.1)}


def kdv_solution(small: bool) -> Equation:
    """The reference; with half the step, and with 640 points, it is the same to 2e-11."""
    linear = (0.0, -DISPERSION[small])
    points, step = (128, 1e-3) if small else (512, 5e-5)
    return Equation(1.0, linear, lambda x: np.cos(PI * x), -1.0, 2.0, points, step)


def ks_solution(small: bool) -> Equation:
    """The reference; disturbances of rounding's size are 1e-9 in the end."""
    a, b, c = KS
    points, step = (256, 1e-3) if small else (384, 2e-5)
    return Equation(a, (-b, 0.0, -c), _bump, 0.0, 2 * math.pi, points, step)


def _bump(x: Any) -> Any:
    return np.cos(x) * (1 + np.sin(x))


def korteweg_de_vries(seed: int, small: bool) -> Setting:
    """The first one, by one net."""
    flow, hidden, counts = kdv_solution(small), KDV_HIDDEN[small], KDV_GRID[small]
    return _slab(Task(flow, flow, (0.0, 1.0), hidden, counts, SIZES[small], seed), [])


def kuramoto_sivashinsky(seed: int, small: bool) -> Setting:
    """The second one, in slabs."""
    flow, hidden, counts = ks_solution(small), KS_HIDDEN[small], KS_GRID[small]
    return _slab(Task(flow, flow, KS_SLABS[small], hidden, counts, SIZES[small], seed), [])


def burgers_periodic(seed: int, small: bool) -> Setting:
    """Burgers' equation of `burgers` by a periodic net, as wide as theirs, with redrawn points."""
    viscosity, hidden, counts = VISCOSITY[small], BURGERS_HIDDEN[small], BURGERS_GRID[small]
    flow, exact = solved(viscosity, points=2048, step=5e-4), partial(cole_hopf, viscosity)
    task = Task(flow, exact, (0.0, 1.0), hidden, counts, SIZES[small], seed)
    return redrawn(_slab(task, []), 2 if small else ROUNDS, seed)


@dataclass(frozen=True)
class Task:
    """What is to be solved, and how.

    Attributes
    ----------
    flow : Equation
        The equation.
    exact : callable
        Its solution.
    times : tuple of float
        The ends of the slabs.
    hidden : tuple of int
        The layers of each slab's net.
    counts : tuple of int
        The points of the test grid in x and t.
    sizes : tuple of int
        How many points each slab has inside, and at its start.
    seed : int
        Of nets and points.
    """

    flow: Equation
    exact: Solution
    times: tuple[float, ...]
    hidden: tuple[int, ...]
    counts: tuple[int, int]
    sizes: tuple[int, int]
    seed: int


class InSlabs(nn.Module):
    """The nets of slabs as one function.

    Parameters
    ----------
    times : sequence of float
        The ends of all slabs.
    nets : sequence of nn.Module
        Of the first slabs. A point of a later time gets the last one.
    """

    def __init__(self, times: Sequence[float], nets: Sequence[nn.Module]) -> None:
        super().__init__()
        self.nets, self._inner_ends = nn.ModuleList(nets), list(times[1 : len(nets)])

    def forward(self, points: Tensor) -> Tensor:
        found = self.nets[0](points)
        for end, net in zip(self._inner_ends, list(self.nets)[1:], strict=True):
            found = torch.where(points[:, 1:] > end, net(points), found)
        return found


def _slab(task: Task, before: list[nn.Module]) -> Setting:
    """The slab after those of some trained nets: it begins where the last of them ends."""
    flow, number, (inner, at_start) = task.flow, len(before), task.sizes
    times, seed = task.times[number : number + 2], task.seed + number
    x = (flow.left, flow.left + flow.length)
    start = uniform((x, (times[0], times[0])), at_start, seed + 1)
    net = PeriodicNet(flow.left, flow.length, (times[0], times[1]), *task.hidden, seed=seed)
    nets = [*before, net.double()]
    function, last = InSlabs(task.times, nets), number + 2 == len(task.times)
    error = solution_error(task.exact, _test_points(task, times[1]), relative=True)
    return Setting(
        net=net,
        residuals=[
            (partial(_equation, flow), uniform((x, times), inner, seed), 1.0),
            (_misfit, (start, _known(task, before, start)), WEIGHT),
        ],
        exact=task.exact,
        domain=(x, (task.times[0], task.times[-1])),
        error=lambda _: error(function),
        share=1 / (len(task.times) - 1),
        following=None if last else partial(_slab, task, nets),
        prediction=function,
    )


@torch.no_grad()
def _known(task: Task, before: list[nn.Module], start: Tensor) -> Tensor:
    """What a slab begins with."""
    if not before:
        return task.exact(start)
    last = before[-1]
    return last(start.to(next(last.parameters()))).to(start)


def _test_points(task: Task, until: float) -> Tensor:
    """The grid of the paper, without the right end, which is the left one."""
    flow, (across, along) = task.flow, task.counts
    right = flow.left + flow.length * (1 - 1 / across)
    points = grid(((flow.left, right), (task.times[0], task.times[-1])), across, along)
    return points[points[:, 1] <= until + 1e-12]


def _equation(flow: Equation, net: Any, points: Tensor) -> Tensor:
    u_t, u, u_x, *higher = net.along_x(points, 1 + len(flow.linear))
    bent = sum(c * slope for c, slope in zip(flow.linear, higher, strict=True) if c)
    return u_t + flow.advection * u * u_x - bent


def _misfit(net: Any, data: tuple[Tensor, Tensor]) -> Tensor:
    points, values = data
    return net(points) - values
