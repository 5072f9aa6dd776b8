"""What an adapter needs of an autodiff library with numpy's interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from ksdmin._adapters.curvature import Product
from ksdmin._adapters.functional.losses import RandomGenerator
from ksdmin._adapters.trees import tree_map
from ksdmin._problem.arrays import Array

Kernel = Callable[..., Any]
"""A pure function of arrays (and trees of them), which a library may compile."""


class Chunk(NamedTuple):
    """Some samples and their weights in the sum of the losses, zero for padding."""

    inputs: Any
    targets: Any
    w: Array


class Library(Protocol):
    """The operations in which autograd and jax differ.

    The defaults are those of a library that computes with numpy, on the host, and compiles nothing.
    """

    xp: Any  # its numpy
    logsumexp: Callable[..., Array]  # as that of ``scipy.special``
    noise: float  # the relative rounding error of a mean loss in float32
    # (outputs, x, inputs) -> the outputs of each sample, and their derivatives along a last axis of
    # length n; None: that would take too long.
    rows_of_samples: Any = None

    @property
    def finer(self) -> Library | None:
        """The same with less rounding; None if there is none."""
        return None

    def flatten(self, tree: Any) -> tuple[Array, Callable[[Array], Any]]:
        """All floating-point arrays of a tree as one vector, and the inverse function.

        The inverse puts all other leaves back as they are. Whole numbers are converted if there is
        nothing else.
        """

    def paths(self, tree: Any) -> list[tuple[str, tuple[int, ...]]]:
        """The path and the shape of each array that `flatten` joins, such as ``layers.0.w``."""

    # What differentiates

    def vjp(self, f: Callable[[Array], Array], x: Array) -> tuple[Array, Product]:
        """f(x) and u -> J^T u."""

    def linearize(self, f: Callable[[Array], Array], x: Array) -> tuple[Array, Any]:
        """f(x), and what `jacobian` needs."""

    def jacobian(self, linearized: Any, z: Array) -> tuple[Product, Product]:
        """v -> J v and u -> J^T u, from what `linearize` returned beside z = f(x)."""

    def columns(self, product: Product, units: Array) -> Array:
        """The products of all unit vectors, along a new first axis."""
        return np.stack([product(unit) for unit in units])

    def prepare_per_sample(
        self, losses: Kernel, x: Array, chunk: Chunk, room: int
    ) -> tuple[int, bool]:
        """Find out, on a few samples, how `per_sample_sums` can be computed.

        Returns how many entries of each sample's gradient it holds in memory, where `room` is for
        so many, and whether it takes many samples at once (rather than one after the other).
        """

    def per_sample_sums(self, losses: Kernel, x: Array, chunk: Chunk) -> tuple[Array, Array, Array]:
        """The loss of each sample, the sum of their gradients and that of the squared gradients.

        `losses` is a function (x, chunk) -> one loss per sample.
        """

    # What compiles

    def compile(self, kernel: Kernel) -> Kernel:
        """The kernel of a problem, compiled for each shape of its arguments."""
        return kernel

    def for_data(self, x: Array, n: int, preferred: int) -> Library:
        """The library for `n` samples, of which at least `preferred` should be in a call.

        (`preferred` is what `preferred_rows` returned.)
        """
        return self

    def compiles_for(self, idx: Any) -> bool:
        """Whether a compiled kernel can take `idx` as an argument."""
        return True

    def compiles_values(self, n: int, preferred: int) -> bool:
        """Whether so few samples deserve a kernel for the value, besides that of the gradient."""
        return True

    def as_given(self, result: Array, x: Array) -> Array:
        """The result of a compiled kernel; a numpy array, if the vector `x` was one."""
        return result

    def partial_sums(self, u: Array) -> Array:
        """A few sums that add up to that of `u`: they are added on the host, in float64."""
        return np.sum(u, dtype=np.float64)

    def shape_of(self, kernel: Kernel, *args: Any) -> tuple[int, ...]:
        """The shape of the result of a kernel that is not compiled."""
        return tuple(kernel(*args).shape)

    def operations(self, kernel: Kernel, *args: Any) -> tuple[float, float] | None:
        """The operations of a kernel's matrix products, and the elements that it writes otherwise.

        The kernel is not compiled. None if they cannot be counted.
        """
        return None

    def bytes_kept(self, kernel: Kernel, *args: Any) -> int:
        """How much memory the results of a kernel hold."""

    # Samples, in chunks

    def preferred_rows(self, x: Array, bytes_per_sample: int) -> int:
        """How many samples are worth a call of a compiled kernel."""
        return 1

    def chunk_rows(self, size: int, n: int, max_rows: int, preferred: int) -> int | None:
        """How many rows the chunks have of a set of `size` of the `n` samples: at most `max_rows`.

        None: all samples in one chunk, without a copy.
        """
        return None if size == n <= max_rows else -(-size // -(-size // max_rows))

    def to_device(self, array: Array, x: Array) -> Array:
        """An array of data, on the device of `x`."""
        return array

    def chunk(self, data: Any, weights: Array, rows: Any, samples: int) -> Any:
        """A chunk as compiled kernels take it: a `Chunk`, or what they make one of.

        It has these `rows` of all the data (None: all). The last row is repeated as padding behind
        the first `samples`.
        """
        if rows is None:
            return Chunk(data[0], data[1], weights)
        inputs, targets = tree_map(lambda array: self.taken(array, rows), data)
        return Chunk(inputs, targets, np.asarray(weights)[rows] * (np.arange(len(rows)) < samples))

    def taken(self, array: Array, rows: Any) -> Array:
        """Some rows of an array of data."""
        return array[rows]

    def random_generator(self, seed: int) -> RandomGenerator:
        """A source of random numbers."""
        return np.random.default_rng(seed)
