"""Whether a gradient of torch is that of the values, and what to look for where it is not."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ksdmin._problem.arrays import Space
from ksdmin._problem.slope_check import slope_ratio

RETAINED = (
    "A derivative within it needs create_graph=True: torch.autograd.grad(u.sum(), x, "
    "create_graph=True), not retain_graph=True, nor backward(retain_graph=True) and x.grad: these "
    "leave a part of the gradient out, and torch does not tell. Look for .detach() and .data, too"
)


def contradicts(value_at: Callable[[Tensor], float], x: Tensor, value: float, g: Tensor) -> bool:
    """Whether values beside x contradict `g`: one is computed where they agree."""
    return slope_ratio(value_at, x, value, g, Space(x)) is not None
