"""Runs whose vectors are numpy arrays, while user code gets the arrays of its own library.

Jax compiles every operation for every shape, and a run has bases of many sizes: hundreds of
compilations. If its arrays are on the CPU, numpy does the algebra instead, and what user code gets
and returns is converted. On other devices jax does the algebra.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from array_api_compat import is_jax_array

from ksdmin._problem.arrays import Array, Small, Space
from ksdmin._problem.counting import CheckedProblem, CountingProblem, Counts, as_counting
from ksdmin._problem.functions import FunctionProblem
from ksdmin._problem.protocol import Jacobian, Product
from ksdmin._problem.values import changed


class HostedSpace(Space):
    """Vectors in numpy, for a user of another library.

    Parameters
    ----------
    x : array
        One of the user's vectors, in the memory of the host.
    """

    hosted = True

    def __init__(self, x: Array) -> None:
        super().__init__(np.asarray(x))
        self._users = Space(x)
        self.library = self._users.library
        # An array that jax may move must stay such an array, or jax would compile again.
        self._where = {"device": x.device} if getattr(x, "committed", False) else {}

    def holds(self, x: Array) -> bool:
        """Whether `x` is a vector of this space; also a complex one, for complex steps."""
        return isinstance(x, np.ndarray) and x.shape == (self.n,)

    def taken(self, x: Array) -> Array:
        """A numpy copy of a user's vector."""
        return np.array(x, dtype=self.dtype)

    def given(self, x: Array) -> Array:
        """A copy in the user's library, which the user may keep."""
        return self._users.native.device_put(np.array(x), **self._where)

    def vector(self, u: Any, origin: str) -> Array:
        return self.taken(self._users.checked(u, origin)).reshape(self.n)

    def matrix(self, H: Any, origin: str) -> Any:
        """The Hessian that user code returned, as numpy."""
        return np.asarray(self._users.matrix(H, origin))

    def product(self, H: Any, v: Array, origin: str) -> Array:
        return H @ v

    def indices(self, idx: npt.NDArray[np.int64]) -> Array:
        """Sample indices in the library of the user.

        (The namespace's own ``asarray`` compiles for every length.)
        """
        return self._users.native.device_put(idx, **self._where)


class HostedProblem(CountingProblem):
    """A problem of an adapter whose verbs accept numpy vectors; what they return becomes numpy."""

    def __init__(self, problem: CountingProblem) -> None:
        self._problem, self.traits = problem, problem.traits

    def counting(self, counts: Counts) -> Self:
        return changed(self, _problem=self._problem.counting(counts))

    def in_finer_arithmetic(self) -> HostedProblem | None:
        finer = self._problem.in_finer_arithmetic()
        return None if finer is None else HostedProblem(finer)

    def value(self, x: Array, idx: Any) -> float:
        return self._problem.value(x, idx)

    def value_and_gradient(self, x: Array, idx: Any, *, diagonal: bool = False) -> Any:
        value, *vectors = self._problem.value_and_gradient(x, idx, diagonal=diagonal)
        return value, *(np.array(u) for u in vectors)

    def value_and_projected_gradient(self, x: Array, idx: Any, V: Array) -> tuple[float, Small]:
        return self._problem.value_and_projected_gradient(x, idx, V)

    def curvature(self, x: Array, idx: Any) -> Product:
        product = self._problem.curvature(x, idx)
        return lambda v: np.array(product(v))

    def matrix(self, x: Array, idx: Any) -> Array | None:
        H = self._problem.matrix(x, idx)
        return None if H is None else np.array(H)

    def jacobian(self, x: Array, idx: Any) -> Jacobian | None:
        J = self._problem.jacobian(x, idx)
        if J is None:
            return None
        own = J._replace(rows=np.array(J.rows), residuals=np.array(J.residuals))
        if not isinstance(J.penalty, float):
            own = own._replace(penalty=np.array(J.penalty))
        return own if J.at is None else own._replace(at=partial(_at, J.at))


def _at(at: Callable[[Array], tuple[Any, Array]], x: Array) -> tuple[Any, Array]:
    """The result of ``Jacobian.at``, in numpy."""
    value, residuals = at(x)
    return value, np.array(residuals)


def space_of_run(x0: Array) -> Space:
    """Where the vectors of a run from `x0` live."""
    return HostedSpace(x0) if is_hosted(x0) else Space(x0)


def is_hosted(x: Array) -> bool:
    """Whether it is a jax array on the CPU, for which numpy does the algebra."""
    return is_jax_array(x) and all(device.platform == "cpu" for device in x.devices())


def problem_of_run(problem: Any, space: Space) -> CountingProblem:
    """The problem for a run in `space`."""
    taken = as_counting(problem, space).in_space(space)
    if not space.hosted or isinstance(taken, (CheckedProblem, FunctionProblem)):
        return taken
    return HostedProblem(taken)
