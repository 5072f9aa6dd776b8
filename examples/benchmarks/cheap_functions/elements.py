"""Sums of terms in a few variables each, vectorised: value, gradient and Hessian products.

A term has its variables in slices of x, so that evaluating it copies nothing. Derivatives are
written by hand: these functions are to be as cheap as somebody who is in a hurry would make them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Array = np.ndarray


class Product:
    """A Hessian, known by its products: `H @ p`."""

    def __init__(self, apply: Callable[[Array], Array]) -> None:
        self._apply = apply

    def __matmul__(self, p: Array) -> Array:
        return self._apply(p)


@dataclass(frozen=True)
class Terms:
    """The sum of phi(x[places[0]], x[places[1]], ...) over the entries of these slices.

    A slice of one entry is a variable that all terms share.

    Attributes
    ----------
    places : sequence of slices
        The variables.
    value : callable
        phi of these variables, for each term.
    slopes : callable
        Its first derivatives, one array for each variable.
    curvatures : callable
        Its second derivatives by pairs (i, j) with i <= j; a pair that is not there is 0.
    """

    places: Sequence[slice]
    value: Callable[..., Array]
    slopes: Callable[..., Sequence[Array]]
    curvatures: Callable[..., Mapping[tuple[int, int], Array | float]]

    def parts(self, x: Array) -> list[Array]:
        return [x[place] for place in self.places]

    def count(self, x: Array) -> int:
        """How many terms there are."""
        return max(len(range(*place.indices(len(x)))) for place in self.places)


class Sum:
    """A sum of `Terms` and a constant."""

    def __init__(self, *terms: Terms, constant: float = 0.0) -> None:
        self._terms, self._constant = terms, constant

    def value(self, x: Array) -> float:
        return self._constant + sum(float(t.value(*t.parts(x)).sum()) for t in self._terms)

    def gradient(self, x: Array) -> Array:
        g = np.zeros_like(x)
        for terms in self._terms:
            for place, slope in zip(terms.places, terms.slopes(*terms.parts(x)), strict=True):
                add(g[place], slope, terms.count(x))
        return g

    def hessian(self, x: Array) -> Product:
        known = [(terms, terms.curvatures(*terms.parts(x))) for terms in self._terms]

        def apply(p: Array) -> Array:
            out = np.zeros_like(p)
            for terms, curvatures in known:
                parts, count = terms.parts(p), terms.count(p)
                for (i, j), h in curvatures.items():
                    add(out[terms.places[i]], h * parts[j], count)
                    if i != j:
                        add(out[terms.places[j]], h * parts[i], count)
            return out

        return Product(apply)


def add(target: Array, change: Array, count: int) -> None:
    """Into a view; of a variable that all `count` terms share, the changes are summed up."""
    if len(target) < count:
        change = change.sum() if len(change) == count else count * change
    target += change


def window(n: int, k: int, step: int = 1) -> list[slice]:
    """The variables x[i], ..., x[i + k - 1] for i = 0, step, 2 step, ..."""
    return [slice(i, n - k + 1 + i, step) for i in range(k)]


FIRST, LAST = slice(0, 1), slice(-1, None)  # shared by all terms


def univariate(
    place: slice,
    value: Callable[[Array], Array],
    slope: Callable[[Array], Array],
    curvature: Callable[[Array], Array | float],
) -> Terms:
    """Terms of one variable each."""
    return Terms([place], value, lambda x: [slope(x)], lambda x: {(0, 0): curvature(x)})


def of_difference(
    places: Sequence[slice],
    value: Callable[[Array], Array],
    slope: Callable[[Array], Array],
    curvature: Callable[[Array], Array | float],
) -> Terms:
    """Terms phi(x - y)."""

    def slopes(x: Array, y: Array) -> tuple[Array, Array]:
        d = slope(x - y)
        return d, -d

    def curvatures(x: Array, y: Array) -> dict[tuple[int, int], Array | float]:
        h = curvature(x - y)
        return {(0, 0): h, (0, 1): -h, (1, 1): h}

    return Terms(places, lambda x, y: value(x - y), slopes, curvatures)


def square(
    places: Sequence[slice],
    residual: Callable[..., Array],
    slopes: Callable[..., Sequence[Array | float]],
    curvatures: Callable[..., Mapping[tuple[int, int], Array | float]] = lambda *parts: {},
    weight: Array | float = 1.0,
) -> Terms:
    """Terms weight r^2, by the derivatives of r."""

    def first(*parts: Array) -> list[Array]:
        scaled = 2 * weight * residual(*parts)
        return [scaled * slope for slope in slopes(*parts)]

    def second(*parts: Array) -> dict[tuple[int, int], Array | float]:
        d, k = slopes(*parts), len(places)
        found = {(i, j): 2 * weight * d[i] * d[j] for i in range(k) for j in range(i, k)}
        bent = curvatures(*parts)
        scaled = 2 * weight * residual(*parts) if bent else 0.0
        for pair, h in bent.items():
            found[pair] = found[pair] + scaled * h
        return found

    return Terms(places, lambda *parts: weight * residual(*parts) ** 2, first, second)
