"""What a run's evaluations take without the method: they are written down, and made again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch


class Recorded:
    """A problem that writes down what it is asked for: the verb, and the set.

    Attributes
    ----------
    calls : list of tuple
        Of the verb's name and its arguments but for points and vectors.
    """

    def __init__(self, problem: Any) -> None:
        self._problem, self.calls = problem, []
        # With the problem's own traits it is the same run.
        self.x0, self.subsets, self.traits = problem.x0, problem.subsets, problem.traits

    def in_finer_arithmetic(self) -> Any:
        """None: evaluations of two kinds would be mixed."""
        return None

    def value(self, x: Any, idx: Any) -> float:
        """The value alone."""
        self.calls.append(("value", idx))
        return self._problem.value(x, idx)

    def value_and_gradient(self, x: Any, idx: Any, *, diagonal: bool = False) -> Any:
        """Value and gradient, and the diagonal."""
        self.calls.append(("value_and_gradient", idx, diagonal))
        return self._problem.value_and_gradient(x, idx, diagonal=diagonal)

    def value_and_projected_gradient(self, x: Any, idx: Any, V: Any) -> Any:
        """The value and its slopes within the subspace."""
        self.calls.append(("value_and_projected_gradient", idx, V.shape[0]))
        return self._problem.value_and_projected_gradient(x, idx, V)

    def curvature(self, x: Any, idx: Any) -> Callable[[Any], Any]:
        """Products."""
        self.calls.append(("curvature", idx))
        product = self._problem.curvature(x, idx)

        def multiply(v: Any) -> Any:
            self.calls.append(("product",))
            return product(v)

        return multiply


def seconds_of_calls(problem: Any, calls: list[tuple[Any, ...]]) -> float:
    """What the evaluations take one after the other, all at the first point.

    The host waits where it gets a number, and at the end.
    """
    x = problem.x0
    widest = max(
        (call[2] for call in calls if call[0] == "value_and_projected_gradient"), default=0
    )
    V = x.repeat(widest, 1)
    if x.is_cuda:
        torch.cuda.synchronize()
    begin, product = time.perf_counter(), None
    for verb, *given in calls:
        if verb == "product":
            assert product is not None
            product(x)
        elif verb == "curvature":
            product = problem.curvature(x, *given)
        elif verb == "value":
            problem.value(x, *given)
        elif verb == "value_and_gradient":
            problem.value_and_gradient(x, given[0], diagonal=given[1])
        else:
            problem.value_and_projected_gradient(x, given[0], V[: given[1]])
    if x.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - begin
