"""Conjugate gradients on the damped quadratic model, as Martens (2010) ends and keeps them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ksdmin._problem.arrays import Array, Space

MIN_PROGRESS = 5e-4  # of the model per iteration, relative: with less they end
WINDOW, WINDOW_SHARE = 10, 0.1  # over so many iterations, or this share of them
FIRST_KEPT, SPACING = 5, 1.3  # the iterates that the step may go back to


@dataclass(frozen=True)
class Solution:
    """What conjugate gradients came to: the iterates kept, the last one last; how many."""

    kept: list[Array]
    iterations: int


def conjugate_gradients(
    space: Space,
    product: Callable[[Array], Array],
    g: Array,
    begin: Array | None,
    precondition: Callable[[Array], Array],
    maxiter: int,
    spent: Callable[[], bool],
) -> Solution:
    """Minimise q(d) = d^T A d / 2 + g^T d, preconditioned, from `begin` or zero.

    `precondition` multiplies by the inverse of the preconditioner.
    """
    d = g * 0 if begin is None else begin
    r = g if begin is None else product(d) + g
    y = precondition(r)
    p, along = -y, float(space.inner(r, y))
    values, kept, next_kept = [0.0], [], FIRST_KEPT
    for i in range(1, maxiter + 1):
        Ap = product(p)
        curvature = float(space.inner(p, Ap))
        if not curvature > 0:
            break
        alpha = along / curvature
        d, r = d + alpha * p, r + alpha * Ap
        y = precondition(r)
        along, before = float(space.inner(r, y)), along
        values.append(float(space.inner(d, r + g)) / 2)
        if i == next_kept:
            kept.append(d)
            next_kept = math.ceil(next_kept * SPACING)
        if finished(values, i) or along == 0 or spent():
            break
        p = (along / before) * p - y
    steps = len(values) - 1
    if steps == 0 and begin is None:
        d = -y  # no curvature to go by
    if not kept or kept[-1] is not d:
        kept.append(d)
    return Solution(kept, steps)


def finished(values: list[float], i: int) -> bool:
    """Martens' test: the model has hardly improved over the last iterations."""
    k = max(WINDOW, math.ceil(WINDOW_SHARE * i))
    return i > k and values[i] < 0 and (values[i] - values[i - k]) / values[i] < MIN_PROGRESS * k
