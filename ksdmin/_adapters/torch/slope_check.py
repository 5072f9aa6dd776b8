"""Whether a gradient is that of the values: they are looked at beside a point, along it."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

# By how much the slope of the values may differ from that which the gradient says, relatively. A
# function is smooth there if the slopes on either side differ by less than half of that.
TOLERANCE = {torch.float64: 0.05, torch.float32: 0.2}
ROUNDINGS = 30  # that a value carries
# In float32, what a step should change the value by, relatively: far above the rounding error, also
# that of products in bfloat16; and how far it may go, relative to the point.
CHANGE, MAX_STEP = 0.02, 0.01

RETAINED = (
    "A derivative within it needs create_graph=True: torch.autograd.grad(u.sum(), x, "
    "create_graph=True), not retain_graph=True, nor backward(retain_graph=True) and x.grad: these "
    "leave a part of the gradient out, and torch does not tell. Look for .detach() and .data, too"
)


def contradicts(value_at: Callable[[Tensor], float], x: Tensor, value: float, g: Tensor) -> bool:
    """Whether values beside x contradict `g`.

    One value is computed where it agrees. Otherwise two, which are believed only where the slopes
    on both sides agree with each other, and rounding cannot have made them.
    """
    size = float(torch.linalg.vector_norm(g))
    if not (math.isfinite(value) and math.isfinite(size)) or size == 0:
        return False
    h, tolerance = _step(x, value, size), TOLERANCE[x.dtype]
    rounding = ROUNDINGS * torch.finfo(x.dtype).eps * abs(value) / (h * size)
    d = g / size
    forth = (value_at(x + h * d) - value) / (h * size)  # 1 where the gradient is right
    if abs(forth - 1) <= tolerance + rounding:
        return False
    back = (value - value_at(x - h * d)) / (h * size)
    largest = max(abs(forth), abs(back))
    if not 0 < largest < math.inf:  # values that are rounded to the same number tell nothing
        return False
    error = abs(forth - back) / 2 + rounding
    return error <= tolerance / 2 * max(1.0, largest) and abs((forth + back) / 2 - 1) > tolerance


def _step(x: Tensor, value: float, size: float) -> float:
    scale = max(1.0, float(x.abs().max()))
    if x.dtype == torch.float64:
        return float(torch.finfo(x.dtype).eps ** (1 / 3)) * scale
    return min(CHANGE * abs(value) / size, MAX_STEP * scale) or MAX_STEP * scale
