"""Sums over the gradients of single samples, and over their squares, in autograd.

One backward pass over all samples has, at every operation, one row of derivatives delta per sample.
Where a parameter W multiplies one vector per sample, a W, its gradient is the outer product
a_i delta_i^T, and sum_i (a_i delta_i^T)^2 = (a^2)^T (delta^2). Where it is added to each sample,
or multiplies it, sum_i delta_i^2 or sum_i (a_i delta_i)^2. For any other use of a parameter there
is no such formula here: then the samples have to be differentiated one after the other.
"""

from __future__ import annotations

from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import VJPNode, add_outgrads, primitive_vjps
from autograd.tracer import isbox, new_box, notrace_primitives, trace_stack
from autograd.util import toposort

from ksdmin._adapters.functional.library import Chunk, Kernel
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
