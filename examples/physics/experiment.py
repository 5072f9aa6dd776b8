"""What an experiment is: the residuals of a net, and how far it is from the solution."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import ksdmin

Solution = Callable[[Tensor], Tensor]  # of points, one a row, a column
Residuals = tuple[Callable[[Any, Any], Tensor], Any, float]  # as from_torch takes them
OPEN = (-math.inf, math.inf)  # the bounds of a parameter that has none
Box = tuple[tuple[float, float], ...]  # the ends of each axis


@dataclass(frozen=True)
class Setting:
    """An experiment with one seed: what a method is given, and how its points are judged.

    Attributes
    ----------
    net : nn.Module
        Where training starts.
    residuals : list of (r, data, weight)
        The objective is the sum of weight * mean(r(net, data)^2).
    exact : callable
        The solution, or a reference for it.
    domain : tuple of pairs
        Where it is defined.
    error : callable
        Of the net.
    bounds : mapping, optional
        The least and the largest value of some parameters, by name.
    share : float
        Of a run's seconds that are its own.
    following : callable, optional
        The setting that begins where this one, trained, ends: the next slab of time, or the same
        with other points.
    prediction : nn.Module, optional
        The solution as far as it is known, where that is more than the net: of all slabs.
    """

    net: nn.Module
    residuals: list[Residuals]
    exact: Solution
    domain: Box
    error: Callable[[nn.Module], float]
    bounds: dict[str, tuple[float, float]] | None = None
    share: float = 1.0
    following: Callable[[], Setting] | None = None
    prediction: nn.Module | None = None

    def problem(self) -> Any:
        """The problem that every method gets: all pay the same for an evaluation."""
        return ksdmin.from_torch(self.net, residuals=self.residuals)

    def box(self) -> tuple[Tensor, Tensor] | None:
        """The bounds as flat vectors."""
        if self.bounds is None:
            return None
        low, high = [], []
        for name, parameter in self.net.named_parameters():
            limits = self.bounds.get(name, OPEN)
            low.append(torch.full_like(parameter, limits[0], requires_grad=False).flatten())
            high.append(torch.full_like(parameter, limits[1], requires_grad=False).flatten())
        return torch.cat(low), torch.cat(high)


@dataclass(frozen=True)
class Experiment:
    """A problem by its name.

    Attributes
    ----------
    title : str
        For tables and figures.
    measure : str
        What the error is.
    axes : tuple of str
        The names of the inputs.
    make : callable
        (seed, small) -> Setting, in float64 on the CPU; `small` is a form for two cores.
    dtypes : tuple of str
        The precisions that its table has.
    bfgs : bool
        Whether there are few enough parameters for BFGS's matrix.
    bounded : bool
        Whether some parameters have bounds.
    """

    title: str
    measure: str
    axes: tuple[str, ...]
    make: Callable[[int, bool], Setting]
    dtypes: tuple[str, ...] = ("float64",)
    bfgs: bool = False
    bounded: bool = False


def solution_error(exact: Solution, points: Tensor, *, relative: bool) -> Any:
    """The root mean square of net - exact on points, or its ratio to that of exact."""
    known: list[Tensor] = []  # a reference may take seconds: not before it is asked for

    @torch.no_grad()
    def error(net: nn.Module) -> float:
        like = next(net.parameters())
        found = net(points.to(like)).double()
        if not known:
            known.append(exact(points.double()))
        target = known[0].to(like.device)
        scale = target.square().mean().sqrt() if relative else 1.0
        return float((found - target).square().mean().sqrt() / scale)

    return error


def uniform(box: Box, count: int, seed: int) -> Tensor:
    """Points drawn in a box, the same ones on every device."""
    generator = torch.Generator().manual_seed(seed)
    shares = torch.rand(count, len(box), generator=generator, dtype=torch.float64)
    low, high = torch.tensor(box, dtype=torch.float64).T
    return low + (high - low) * shares


def grid(box: Box, *counts: int) -> Tensor:
    """All points of a grid with its ends, the first axis slowest."""
    axes = [
        torch.linspace(low, high, count, dtype=torch.float64)
        for (low, high), count in zip(box, counts, strict=True)
    ]
    return torch.cartesian_prod(*axes).reshape(-1, len(box))


PICTURE = {1: 201, 2: 41}  # points along an axis, for one axis and for two


def picture_grid(setting: Setting) -> Tensor:
    """Where pictures of the solution are made."""
    return grid(setting.domain, *([PICTURE[len(setting.domain)]] * len(setting.domain)))
