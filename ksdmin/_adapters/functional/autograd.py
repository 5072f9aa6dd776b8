"""Functions of HIPS autograd as problems: numpy in, numpy out."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import autograd
import autograd.numpy as anp
import numpy as np
from autograd.core import VJPNode, add_outgrads, primitive_vjps
from autograd.scipy.special import logsumexp
from autograd.tracer import isbox, new_box, notrace_primitives, trace_stack
from autograd.util import toposort

from ksdmin._adapters.arguments import Arguments
from ksdmin._adapters.blocks import BlockProblem
from ksdmin._adapters.curvature import Product
from ksdmin._adapters.flat_problem import VALUE_NOISE
from ksdmin._adapters.functional.library import Chunk, Kernel, Library
from ksdmin._adapters.functional.problem import FunctionalProblem
from ksdmin._adapters.functional.problem import build as build_functional
from ksdmin._adapters.trees import dotted, like, paths, rebuilt, tree_leaves, tree_map
from ksdmin._problem.arrays import Array

PRODUCTS = (anp.dot, anp.matmul)
ELEMENTWISE = (anp.add, anp.subtract, anp.multiply, anp.true_divide)


class Pieces(list[Any]):
    """The parameters one by one, in place of the flat vector that holds them."""


class TapeNode(VJPNode):  # type: ignore[misc]
    """An operation of autograd's graph that keeps its arguments."""

    __slots__ = ("argnums", "args", "fun", "kwargs", "value")

    def __init__(
        self, value: Any, fun: Any, args: Any, kwargs: Any, argnums: Any, parents: Any
    ) -> None:
        super().__init__(value, fun, args, kwargs, argnums, parents)
        self.value, self.fun, self.args = value, fun, args
        self.kwargs, self.argnums = kwargs, argnums


notrace_primitives[TapeNode] = notrace_primitives[VJPNode]


def sums_in_one_pass(
    losses: Kernel, pieces: list[Array], chunk: Chunk
) -> tuple[Array, list[Array], list[Array]] | None:
    """The losses, the sums of their gradients and those of the squares; None: no formula known."""
    with trace_stack.new_trace() as trace:
        roots = [TapeNode.new_root() for _ in pieces]
        boxes = [new_box(piece, trace, root) for piece, root in zip(pieces, roots, strict=True)]
        end = losses(Pieces(boxes), chunk)
    if not isbox(end):
        return None
    passed = _backward(end._node, roots, chunk.w)
    if passed is None:
        return None
    gradients, squares = passed
    unused = [np.zeros_like(piece) for piece in pieces]
    sums = [gradients.get(root, (zero,))[0] for root, zero in zip(roots, unused, strict=True)]
    return end._value, sums, [squares.get(*pair) for pair in zip(roots, unused, strict=True)]


def _backward(
    end: TapeNode, roots: list[TapeNode], w: Array
) -> tuple[dict[Any, Any], dict[Any, Array]] | None:
    """One backward pass: the gradients in the roots, and the sums of squared gradients."""
    gradients: dict[Any, Any] = {end: (w, False)}
    squares: dict[Any, Array] = {}
    for node in toposort(end):
        if node in roots:
            continue
        delta, _ = gradients.pop(node)
        for argnum, parent, gradient in zip(
            node.argnums, node.parents, node.vjp(delta), strict=True
        ):
            gradients[parent] = add_outgrads(gradients.get(parent), gradient)
            if parent in roots:
                square = _squares(node, argnum, delta, len(w))
                if square is None or parent in squares:  # used twice: the square of a sum
                    return None
                squares[parent] = square
    return gradients, squares


def _squares(node: TapeNode, argnum: int, delta: Array, rows: int) -> Array | None:
    """The sum over samples of the squared gradients in an operation's argument."""
    if np.shape(delta)[:1] != (rows,):
        return None
    piece = np.asarray(node.args[argnum])
    if node.fun in PRODUCTS and argnum == 1:
        a = node.args[0]
        return (a**2).T @ delta**2 if a.ndim == 2 and delta.ndim <= 2 else None
    shape = (1,) * (delta.ndim - piece.ndim) + piece.shape
    if node.fun not in ELEMENTWISE or shape[0] != 1:
        return None
    args = list(node.args)
    args[argnum] = np.broadcast_to(piece.reshape(shape), (rows, *shape[1:]))  # one per sample
    (gradients,) = primitive_vjps[node.fun]((argnum,), node.value, tuple(args), node.kwargs)(delta)
    return np.asarray((gradients**2).sum(axis=0)).reshape(piece.shape)


# Relative difference between the sums of one backward pass and those of single samples: both are
# exact, so what is above rounding in float32 is a use of a parameter that was misunderstood.
MAX_ONE_PASS_DIFFERENCE = 1e-3


class Autograd(Library):
    """The operations of :class:`Library`, by recording numpy operations."""

    xp = anp
    logsumexp = staticmethod(logsumexp)
    noise = VALUE_NOISE["highest"]  # sums over samples are made in float64

    def __init__(self) -> None:
        self._one_pass_suffices = False
        self._split: Callable[[Array], Pieces] = Pieces

    def flatten(self, tree: Any) -> tuple[Array, Callable[[Array], Any]]:
        tree = _in_order(_with_varied(tree))
        leaves = tree_leaves(tree)
        arrays = [np.asarray(leaf) for leaf in leaves if _is_floating(leaf)]
        shapes = [array.shape for array in arrays]
        ends = np.cumsum([array.size for array in arrays], dtype=int).tolist()
        slices = [slice(end - array.size, end) for end, array in zip(ends, arrays, strict=True)]

        def split(x: Array) -> Pieces:
            return Pieces(
                x[part].reshape(shape) for part, shape in zip(slices, shapes, strict=True)
            )

        def unflatten(x: Array) -> Any:
            pieces = iter(x if isinstance(x, Pieces) else split(x))
            return rebuilt(tree, (next(pieces) if _is_floating(u) else u for u in leaves))

        self._split = split
        flat = [array.reshape(-1) for array in arrays]
        return np.concatenate(flat) if flat else np.zeros(0), unflatten

    def paths(self, tree: Any) -> list[tuple[str, tuple[int, ...]]]:
        leaves = paths(_in_order(_with_varied(tree)))
        return [(dotted(path), np.shape(leaf)) for path, leaf in leaves if _is_floating(leaf)]

    def compile(self, kernel: Kernel) -> Kernel:
        """The kernel, without the warnings of overflow in derivatives that are zero (of tanh)."""
        quiet: Kernel = np.errstate(over="ignore")(kernel)
        return quiet

    def vjp(self, f: Callable[[Array], Array], x: Array) -> tuple[Array, Product]:
        with warnings.catch_warnings():
            # autograd warns so of a linear function, whose second derivatives are zero
            warnings.filterwarnings("ignore", "Output seems independent of input")
            pullback, y = autograd.make_vjp(f)(x)
        return y, pullback

    def linearize(self, f: Callable[[Array], Array], x: Array) -> tuple[Array, Any]:
        """f(x), and the products with J and with J^T.

        J^T u is linear in u: differentiating it in u gives J v, so that no activation is
        computed again.
        """
        z, vjp = self.vjp(f, x)
        _, jvp = self.vjp(vjp, np.zeros_like(z))
        return z, (jvp, vjp)

    def jacobian(self, linearized: Any, z: Array) -> tuple[Product, Product]:
        jvp, vjp = linearized
        return jvp, vjp

    @np.errstate(over="ignore")
    def prepare_per_sample(
        self, losses: Kernel, x: Array, chunk: Chunk, room: int
    ) -> tuple[int, bool]:
        """Find out whether one backward pass over all samples is enough; it holds no gradients."""
        sums, expected = self._in_one_pass(losses, x, chunk), self._one_by_one(losses, x, chunk)
        self._one_pass_suffices = sums is not None and all(
            np.max(np.abs(a - b), initial=0.0)
            <= MAX_ONE_PASS_DIFFERENCE * np.max(np.abs(b), initial=0.0)
            for a, b in zip(sums, expected, strict=True)
        )
        return 0, self._one_pass_suffices

    def per_sample_sums(self, losses: Kernel, x: Array, chunk: Chunk) -> tuple[Array, Array, Array]:
        sums = self._in_one_pass(losses, x, chunk) if self._one_pass_suffices else None
        return self._one_by_one(losses, x, chunk) if sums is None else sums

    def _in_one_pass(
        self, losses: Kernel, x: Array, chunk: Chunk
    ) -> tuple[Array, Array, Array] | None:
        found = sums_in_one_pass(losses, self._split(x), chunk)
        if found is None:
            return None
        values, *sums = found
        g, squares = (np.concatenate([piece.reshape(-1) for piece in each]) for each in sums)
        return values, g, squares

    def _one_by_one(self, losses: Kernel, x: Array, chunk: Chunk) -> tuple[Array, Array, Array]:
        values, g, squares = np.zeros(len(chunk.w)), np.zeros_like(x), np.zeros_like(x)
        for i in np.flatnonzero(chunk.w):
            sample = Chunk(*tree_map(itemgetter(slice(i, i + 1)), tuple(chunk)))
            loss, pullback = self.vjp(partial(losses, chunk=sample), x)
            gradient = pullback(sample.w)
            values[i] = loss[0]
            g += gradient
            squares += gradient**2
        return values, g, squares

    @np.errstate(over="ignore")
    def bytes_kept(self, kernel: Kernel, *args: Any) -> int:
        """How much memory the recorded operations of a kernel hold."""
        tracing = tracemalloc.is_tracing()
        if not tracing:
            tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            kept = kernel(*args)
            after, _ = tracemalloc.get_traced_memory()
            del kept
            return after - before
        finally:
            if not tracing:
                tracemalloc.stop()


def _with_varied(tree: Any) -> Any:
    """The tree; if nothing in it is varied, with its whole numbers as floating-point arrays."""
    if any(np.size(leaf) for leaf in tree_leaves(tree) if _is_floating(leaf)):
        return tree
    return tree_map(
        lambda leaf: np.asarray(leaf, float) if np.asarray(leaf).dtype.kind in "iub" else leaf, tree
    )


def _in_order(tree: Any) -> Any:
    """The tree with its dictionaries in the order of their keys, as jax has them."""
    if isinstance(tree, dict):
        return {key: _in_order(tree[key]) for key in sorted(tree)}
    if isinstance(tree, (tuple, list)):
        return like(tree, {i: _in_order(part) for i, part in enumerate(tree)})
    return tree


def _is_floating(leaf: Any) -> bool:
    """Whether it holds floating-point numbers (complex ones are refused later)."""
    return np.asarray(leaf).dtype.kind in "fc"


def build(asked: Arguments) -> FunctionalProblem | BlockProblem:
    """The problem of :func:`ksdmin.from_autograd`."""
    return build_functional(Autograd(), asked)
