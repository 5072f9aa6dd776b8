"""What a run's evaluations take without the method: they are written down, and made again."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch


class Recorded:
    """A problem that writes down what it is asked for: the verb, and the set.

    Attributes
    ----------
    calls : list of tuple
        Of the verb's name and its arguments but for points and vectors, as `Repeated` takes them.
    """

    def __init__(self, problem: Any) -> None:
        self._problem, self.calls = problem, []
        self.x0, self.subsets = problem.x0, problem.subsets
        # With the problem's own traits and counts it is the same run.
        self.traits = replace(problem.traits, counts_itself=True)

    def counting(self, counts: Any) -> Recorded:
        """The problem for a run, which adds to `counts`; the calls are in the same list."""
        counted = copy.copy(self)
        counted._problem = self._problem.counting(counts)
        return counted

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

    def factors(self, x: Any, idx: Any) -> Any:
        """Kronecker factors of the curvature."""
        self.calls.append(("factors", idx))
        return self._problem.factors(x, idx)

    def matrix(self, x: Any, idx: Any) -> Any:
        """The whole curvature matrix."""
        self.calls.append(("matrix", idx))
        return self._problem.matrix(x, idx)

    def jacobian(self, x: Any, idx: Any) -> Any:
        """The rows of the Jacobian; and residuals at other points."""
        self.calls.append(("jacobian", idx))
        rows = self._problem.jacobian(x, idx)

        def at(y: Any) -> Any:
            self.calls.append(("residuals",))
            return rows.at(y)

        return rows if rows is None or rows.at is None else rows._replace(at=at)


class Repeated:
    """The evaluations of a list of calls, made again: all at the first point of a problem.

    Each method is named as the call that it makes.

    Parameters
    ----------
    problem : Problem
        What is evaluated.
    widest : int
        The most vectors that slopes are wanted along.
    """

    def __init__(self, problem: Any, widest: int) -> None:
        self._problem, self._x = problem, problem.x0
        self._V = self._x.repeat(widest, 1)
        self._product: Any = None
        self._rows: Any = None

    def value(self, idx: Any) -> None:
        """The value alone."""
        self._problem.value(self._x, idx)

    def value_and_gradient(self, idx: Any, diagonal: bool) -> None:
        """Value and gradient, and the diagonal."""
        self._problem.value_and_gradient(self._x, idx, diagonal=diagonal)

    def value_and_projected_gradient(self, idx: Any, vectors: int) -> None:
        """The value and its slopes along so many vectors."""
        self._problem.value_and_projected_gradient(self._x, idx, self._V[:vectors])

    def curvature(self, idx: Any) -> None:
        """What the next products share."""
        self._product = self._problem.curvature(self._x, idx)

    def product(self) -> None:
        """A product."""
        self._product(self._x)

    def factors(self, idx: Any) -> None:
        """Kronecker factors of the curvature."""
        self._problem.factors(self._x, idx)

    def matrix(self, idx: Any) -> None:
        """The whole curvature matrix."""
        self._problem.matrix(self._x, idx)

    def jacobian(self, idx: Any) -> None:
        """The rows of the Jacobian; the last ones, which are large, need not stay beside them."""
        self._rows = None
        self._rows = self._problem.jacobian(self._x, idx)

    def residuals(self) -> None:
        """The residuals that belong to these rows."""
        self._rows.at(self._x)


def seconds_of_calls(problem: Any, calls: list[tuple[Any, ...]]) -> float:
    """What the evaluations take one after the other.

    The host waits where it gets a number, and at the end.
    """
    vectors = [call[2] for call in calls if call[0] == "value_and_projected_gradient"]
    again = Repeated(problem, max(vectors, default=0))
    wait = torch.cuda.synchronize if problem.x0.is_cuda else lambda: None
    wait()
    begin = time.perf_counter()
    for verb, *given in calls:
        getattr(again, verb)(*given)
    wait()
    return time.perf_counter() - begin
