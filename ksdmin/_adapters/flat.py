"""What all adapters share: the counting, the preconditioner, the face towards SciPy."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ksdmin._adapters.curvature import Product
from ksdmin._problem.arrays import Array, Space, to_host
from ksdmin._problem.functions import Counts
from ksdmin._problem.subsets import WHOLE, Subsets

STRAIGHT = 1e-3  # of the change along a line: less bend is rounding
# Samples that tell the diagonal where it takes the gradient of each: those of all samples cost
# twice what their sum does for a convolution, 20 to 100 times as much for a recurrent net.
ENOUGH = 256
FISHER_POWER = 0.75  # Martens'; between steepest descent and full trust in a diagonal


class FlatProblem:
    """A model as a problem over one flat vector; the adapters add what they compute.

    Parameters
    ----------
    x0 : array
        The model's own parameters.
    subsets : Subsets or None
        Its samples.
    noise : float or None
        The relative rounding error of values, where it is more than the dtype's.
    precond : "fisher", None, array or callable
        The diagonal of the empirical Fisher matrix, no preconditioner, or the user's own.
    """

    def __init__(
        self, x0: Array, subsets: Subsets | None, noise: float | None, precond: Any
    ) -> None:
        known = precond is None or callable(precond) or hasattr(precond, "shape")
        if not known and not (isinstance(precond, str) and precond == "fisher"):
            raise ValueError(
                f"precond={precond!r}: expected 'fisher', None, an array or a callable (x, idx)"
            )
        self.x0, self.subsets, self.noise = x0, subsets, noise
        self.has_diagonal = precond is not None
        self.nonlinear = False
        self.diagonal_power = FISHER_POWER if isinstance(precond, str) else 1.0
        self._space, self._precond, self._counts = Space(x0), precond, Counts()

    def counting(self, counts: Counts) -> Self:
        """A copy for one run, that counts in `counts`."""
        twin = copy.copy(self)
        twin._counts = counts
        return twin

    # Verbs that the adapters bring

    def value(self, x: Array, idx: Any = WHOLE) -> float:
        """The mean loss."""
        raise NotImplementedError

    def curvature(self, x: Array, idx: Any = WHOLE) -> Product:
        """The product v -> Hv with the curvature that was asked for."""
        raise NotImplementedError

    def _means(self, kind: str, x: Array, idx: Any) -> tuple[Any, ...]:
        """("gradient") value and gradient; ("diagonal") with the mean of the squared gradients."""
        raise NotImplementedError

    def _telling(self, idx: Any) -> Any:
        """The samples of a set that tell the diagonal: all of it, or `ENOUGH` of them."""
        raise NotImplementedError

    # What is made of them

    def value_and_gradient(self, x: Array, idx: Any = WHOLE, *, diagonal: bool = False) -> Any:
        """(value, gradient), or with the diagonal of the preconditioner."""
        value, *tall = self._evaluate(x, idx, diagonal)
        return (float(value), *tall)

    def _evaluate(self, x: Array, idx: Any, diagonal: bool) -> tuple[Any, ...]:
        self._counts.nfev += 1
        self._counts.njev += 1
        fisher = diagonal and isinstance(self._precond, str)
        few = self._telling(idx) if fisher else idx
        if fisher and few is idx:
            return self._means("diagonal", x, idx)
        value, g = self._means("gradient", x, idx)
        if not diagonal:
            return value, g
        return value, g, self._sampled_diagonal(x, few) if fisher else self._own_diagonal(x, idx)

    def _sampled_diagonal(self, x: Array, few: Any) -> Array:
        """The diagonal, from a few samples."""
        assert self.subsets is not None
        assert self.subsets.n is not None
        self._counts.passes += 2 * ENOUGH / self.subsets.n
        return self._means("diagonal", x, few)[2]

    def _own_diagonal(self, x: Array, idx: Any) -> Array:
        if self._precond is None:
            raise ValueError("this problem has no diagonal: precond=None, or a plain function")
        diagonal = self._precond(x, idx) if callable(self._precond) else self._precond
        return self._space.vector(diagonal, "precond")

    def _counted(self, product: Product) -> Product:
        def counted(v: Array) -> Array:
            self._counts.nhev += 1
            return product(v)

        return counted

    def _forward_again(self) -> None:
        """A product had to make its forward pass again."""
        self._counts.nfev += 1

    # The same on the whole set, for SciPy's methods: numpy in, numpy out

    def fun(self, x: npt.NDArray[Any]) -> float:
        """The value at a numpy vector."""
        return self.value(self._away(x))

    def jac(self, x: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The gradient at a numpy vector."""
        return to_host(self.value_and_gradient(self._away(x))[1])

    def hessp(self, x: npt.NDArray[Any], p: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The curvature at a numpy vector, times another."""
        return to_host(self.curvature(self._away(x))(self._away(p)))

    def _away(self, x: Any) -> Array:
        """A vector of any kind, where the problem lives."""
        shape = tuple(np.shape(x))
        if shape != (self._space.n,):
            raise ValueError(f"x has shape {shape}, expected {(self._space.n,)}")
        return x if self._space.holds(x) else self._space.away(to_host(x))


@dataclass(frozen=True)
class SampleLoss:
    """A loss as the adapters need it.

    Attributes
    ----------
    losses : callable
        (outputs, targets) -> one loss a sample.
    hessian : callable or None
        (outputs, targets, weights) -> product with the Hessian in the outputs; None: by autodiff.
    draw : callable or None
        (outputs, targets, source of randomness) -> targets drawn from the model; None: it is no
        likelihood.
    weigh : callable or None
        targets -> the weight that each sample has in the loss's own mean; None: all the same.
    share : callable
        outputs -> what the loss is of the negative log-likelihood: 1 / elements for a mean.
    """

    losses: Callable[[Any, Any], Any]
    hessian: Callable[[Any, Any, Any], Product] | None = None
    draw: Callable[[Any, Any, Any], Any] | None = None
    weigh: Callable[[Any], Any] | None = None
    share: Callable[[Any], float] = lambda z: 1.0


def seed_of(seed: int, idx: Any) -> int:
    """A seed that depends on the set of samples.

    So a set always has the same labels drawn, and the same dropout masks; the next set, others.
    """
    what = repr(idx).encode() if isinstance(idx, slice) else to_host(idx).tobytes()
    digest = hashlib.blake2b(what, digest_size=6, key=seed.to_bytes(8, "little")).digest()
    return int.from_bytes(digest, "little")


def bends(outputs: Callable[[Array], Array], x: Array) -> bool:
    """Whether a model's outputs are anything but linear in its parameters, seen around `x`."""
    space = Space(x)
    size = space.norm(x) or 1.0
    line = np.random.default_rng(0).standard_normal(space.n)
    step = space.away(line * (size / np.linalg.norm(line)))
    behind, middle, ahead = (to_host(outputs(x + t * step)) for t in (-1.0, 0.0, 1.0))
    bend = np.abs(ahead - 2 * middle + behind).max(initial=0.0)
    return not bend <= STRAIGHT * np.abs(ahead - behind).max(initial=0.0)
