"""Sums over the gradients of single samples, and over their squares, in jax.

`vmap` gives the gradients of all samples. Where a weight matrix multiplies one vector per sample,
its gradient is an outer product a_i b_i^T, and sum_i (a_i b_i^T)^2 = (a^2)^T (b^2): the products
need never be formed. So the operations that made the gradients are traced back from the result,
through those that only rearrange entries, and outer products are summed from their factors. All
other gradients are formed and summed. Both are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import tree_leaves, tree_map

from ksdmin._adapters.functional.jax_chunks import formed as as_chunk
from ksdmin._adapters.functional.library import Chunk, Kernel
from ksdmin._problem.arrays import Array


@dataclass(frozen=True, eq=False)
class Node:
    """A value, and the operation that made it of others."""

    value: Array
    operation: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[Node, ...] = ()


def sums_over_samples(losses: Kernel, x: Array, chunk: Chunk) -> tuple[Array, Array, Array]:
    """The losses, and the sums of their weighted gradients and of the squares of these."""
    values, gradients = _gradients(losses, x, chunk)
    return values, _summed(gradients, chunk.w, 1), _summed(gradients, chunk.w**2, 2)


def entries_formed(losses: Kernel, x: Array, chunk: Any) -> int:
    """How many entries of its gradient are formed for each sample."""
    formed: list[int] = []

    def trace(x: Array, chunk: Any) -> None:
        chunk = as_chunk(chunk)
        _summed(_gradients(losses, x, chunk)[1], chunk.w, 2, formed)

    jax.eval_shape(trace, x, chunk)
    return sum(formed)


def _gradients(losses: Kernel, x: Array, chunk: Chunk) -> tuple[Array, Node]:
    """The losses and the gradients of all samples, with the operations that made them."""

    def of_sample(x: Array, sample: Any) -> tuple[Array, Array]:
        inputs, targets = tree_map(lambda part: part[None], sample)
        loss, pullback = jax.vjp(lambda x: losses(x, Chunk(inputs, targets, jnp.ones(1))), x)
        return loss[0], pullback(jnp.ones_like(loss))[0]

    samples = (chunk.inputs, chunk.targets)
    closed = jax.make_jaxpr(jax.vmap(of_sample, (None, 0)))(x, samples)
    arguments = [Node(leaf) for leaf in tree_leaves((x, samples))]
    values, gradients = _run(closed.jaxpr, closed.consts, arguments)
    return values.value, gradients


def _run(jaxpr: Any, consts: Any, arguments: list[Node]) -> list[Node]:
    """Evaluate, noting which operation made which value; nested functions are inlined."""
    known = dict(zip(jaxpr.constvars, map(Node, consts), strict=True))
    known.update(zip(jaxpr.invars, arguments, strict=True))

    def read(variable: Any) -> Node:
        return Node(variable.val) if hasattr(variable, "val") else known[variable]

    for equation in jaxpr.eqns:
        inputs, operation = [read(variable) for variable in equation.invars], equation.primitive
        if operation.name in ("jit", "pjit"):
            inner = equation.params["jaxpr"]
            outputs = _run(inner.jaxpr, inner.consts, inputs)
        else:
            values = _evaluate(jaxpr, equation, inputs)
            made = operation.name, equation.params, tuple(inputs)
            outputs = [Node(value, *made) for value in values]
        known.update(zip(equation.outvars, outputs, strict=True))
    return [read(variable) for variable in jaxpr.outvars]


def _evaluate(jaxpr: Any, equation: Any, inputs: list[Node]) -> list[Array]:
    """One operation, as a program of its own: how a primitive is called changes with versions."""
    known = {
        variable: node.value
        for variable, node in zip(equation.invars, inputs, strict=True)
        if not hasattr(variable, "val")
    }
    names = {"arg_names": ("",) * len(known), "result_paths": ("",) * len(equation.outvars)}
    program = jaxpr.replace(
        constvars=[],
        invars=list(known),
        outvars=equation.outvars,
        eqns=[equation],
        debug_info=jaxpr.debug_info and jaxpr.debug_info._replace(**names),
    )
    values: list[Array] = jax.core.eval_jaxpr(program, [], *known.values())
    return values


def _summed(node: Node, w: Array, power: int, formed: list[int] | None = None) -> Array:
    """The weighted sum, over the first axis, of a value to a power."""
    recurse = partial(_summed, w=w, power=power, formed=formed)
    params, rows = node.params, w.shape[0]
    if node.operation == "concatenate" and params["dimension"] > 0:
        return jnp.concatenate([recurse(part) for part in node.inputs], params["dimension"] - 1)
    if node.operation == "reshape" and node.inputs[0].value.shape[:1] == (rows,):
        return recurse(node.inputs[0]).reshape(node.value.shape[1:])
    if node.operation == "transpose" and params["permutation"][0] == 0:
        return recurse(node.inputs[0]).transpose([axis - 1 for axis in params["permutation"][1:]])
    if node.operation == "dot_general" and _is_outer(node):
        return _summed_outer(node, w, power)
    if formed is not None:
        formed.append(node.value.size // rows)
    return jnp.tensordot(w, node.value**power, 1)


def _summed_outer(node: Node, w: Array, power: int) -> Array:
    """The same of outer products, from their factors."""
    ((left, right), (left_batch, right_batch)) = node.params["dimension_numbers"]
    a, b = (part.value**power for part in node.inputs)
    a = a * w.reshape([-1 if axis == left_batch[0] else 1 for axis in range(a.ndim)])
    axes = (*left_batch, *left), (*right_batch, *right)
    return jax.lax.dot_general(a, b, (axes, ((), ())))


def _is_outer(node: Node) -> bool:
    """Whether a product of matrices has one term per sample."""
    ((left, _), (batch, _)) = node.params["dimension_numbers"]
    shape = node.inputs[0].value.shape
    return len(batch) == 1 and all(shape[axis] == 1 for axis in left)
