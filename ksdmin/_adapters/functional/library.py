"""What an autodiff library that speaks numpy has to do for its adapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ksdmin._adapters.curvature import Product
from ksdmin._adapters.functional.data import Chunk
from ksdmin._adapters.functional.losses import Draws
from ksdmin._problem.arrays import Array

Kernel = Callable[..., Any]
"""A pure function of arrays (and trees of them), which a library may compile."""


class Library(Protocol):
    """The verbs in which the adapters of autograd and jax differ."""

    @property
    def xp(self) -> Any:
        """Its numpy."""

    @property
    def noise(self) -> float:
        """The relative rounding error of a mean loss in float32."""

    @property
    def exact(self) -> Library | None:
        """The same with less of it; None where there is none."""

    def logsumexp(self, z: Array, axis: int, keepdims: bool) -> Array:
        """The function of that name in ``scipy.special``."""

    def flatten(self, tree: Any) -> tuple[Array, Callable[[Array], Any]]:
        """All arrays of a tree as one vector, and the way back."""

    def compile(self, kernel: Kernel, *, shared: bool = False) -> Kernel:
        """The kernel, made fast: for one problem, or once for all that share it."""

    def compiles_for(self, idx: Any) -> bool:
        """Whether a compiled kernel can take `idx` as an argument."""

    def vjp(self, f: Callable[[Array], Array], x: Array) -> tuple[Array, Product]:
        """f(x) and u -> J^T u."""

    def linearize(self, f: Callable[[Array], Array], x: Array) -> tuple[Array, Any]:
        """f(x), and what `jacobian` needs."""

    def jacobian(self, kept: Any, z: Array) -> tuple[Product, Product]:
        """v -> J v and u -> J^T u, from what `linearize` kept; f(x) was `z`."""

    def prepare(self, losses: Kernel, x: Array, chunk: Chunk) -> tuple[int, bool]:
        """Look at a few samples.

        How many entries of its gradient `per_sample` holds for each; whether it sees many at once.
        """

    def per_sample(self, losses: Kernel, x: Array, chunk: Chunk) -> tuple[Array, Array, Array]:
        """The losses (x, chunk) -> one a sample; sums of their gradients, and of the squares."""

    def partial_sums(self, u: Array) -> Array:
        """A few sums that together are that of `u`: they are added at home, in float64."""

    def bytes_kept(self, kernel: Kernel, *args: Any) -> int:
        """How much memory the results of a kernel hold."""

    def rows(self, size: int, most: int) -> int:
        """How long to make the chunks of a set of `size` samples, at most `most`."""

    def place(self, array: Array, x: Array) -> Array:
        """An array of data, on the device of `x`."""

    def take(self, array: Array, rows: Any) -> Array:
        """Some rows (a slice, or indices) of an array."""

    def weights(self, rows: int, real: int, dtype: Any) -> Array:
        """One for the first `real` of `rows` samples, zero for the others, in a dtype."""

    def draws(self, seed: int) -> Draws:
        """A source of random numbers."""
