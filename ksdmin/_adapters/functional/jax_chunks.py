"""Samples for compiled functions of jax: their rows are taken within, in chunks of one length."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_dataclass, tree_leaves, tree_map

from ksdmin._adapters.functional.jax_arrays import (
    constrained,
    over_rows,
    parts_of,
)
from ksdmin._adapters.functional.library import Chunk, Kernel
from ksdmin._problem.arrays import Array


@partial(
    register_dataclass, data_fields=["data", "weights", "rows", "samples"], meta_fields=["spread"]
)
@dataclass(frozen=True)
class Picked:
    """A chunk that is formed where it is used, within a compiled function."""

    data: Any  # all inputs and targets, on the device
    weights: Array  # of all samples
    rows: Array  # which samples the chunk has, padded to its length
    samples: Any  # how many of them are not padding
    # How rows are spread over devices: those of a chunk shall be, too, so that each device computes
    # with its share of them.
    spread: Any

    def formed(self) -> Chunk:
        """The samples and their weights."""
        inputs, targets = tree_map(self._taken, self.data)
        w = _rows(self.weights, self.rows)
        return Chunk(inputs, targets, w * (jnp.arange(self.rows.shape[0]) < self.samples))

    def _taken(self, array: Array) -> Array:
        return constrained(_rows(array, self.rows), self.spread)


def picked(data: Any, weights: Array, rows: Any, samples: int) -> Picked:
    """A chunk of some rows; equally many for each device, if they are sharded."""
    sharding = over_rows(data)
    if sharding is not None:
        missing = -len(rows) % parts_of(sharding)
        rows = np.concatenate([rows, np.repeat(rows[-1:], missing)])
    return Picked(data, weights, np.asarray(rows, np.int32), np.int32(samples), sharding)


def as_chunk(argument: Any) -> Any:
    """A chunk that was only picked, formed; any other argument unchanged."""
    return argument.formed() if isinstance(argument, Picked) else argument


def _rows(array: Array, rows: Array) -> Array:
    """Some rows; all of them exist, which saves the operations for missing ones."""
    return array.at[rows].get(mode="promise_in_bounds")


taken = jax.jit(_rows)


# Sums over the gradients of single samples, and over their squares, in jax


@dataclass(frozen=True, eq=False)
class Node:
    """A value, and the operation that made it of others."""

    value: Array
    operation: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[Node, ...] = ()


def entries_formed(losses: Kernel, x: Array, chunk: Any) -> int:
    """How many entries of its gradient are formed for each sample."""
    formed: list[int] = []

    def trace(x: Array, chunk: Any) -> None:
        chunk = as_chunk(chunk)
        summed(gradients(losses, x, chunk)[1], chunk.w, 2, formed)

    jax.eval_shape(trace, x, chunk)
    return sum(formed)


def gradients(losses: Kernel, x: Array, chunk: Chunk) -> tuple[Array, Node]:
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
    """Evaluate, recording which operation made which value; nested functions are inlined."""
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
    """One operation, as a separate program, because calls of primitives change with versions."""
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


def summed(node: Node, w: Array, power: int, formed: list[int] | None = None) -> Array:
    """The weighted sum, over the first axis, of a value to a power."""
    recurse = partial(summed, w=w, power=power, formed=formed)
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


# What a function costs


# Operations that a compiler fuses with those that read their results.
REARRANGED = {
    "broadcast_in_dim",
    "convert_element_type",
    "reshape",
    "slice",
    "split",
    "squeeze",
    "transpose",
}


def operations(jaxpr: Any) -> tuple[float, float]:
    """The operations of the matrix products and convolutions, and the elements written otherwise.

    A loop counts as often as it runs, if that is known.
    """
    products = elements = 0.0
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        written = sum(math.prod(variable.aval.shape) for variable in equation.outvars)
        bodies = [body for value in params.values() for body in _bodies(value)]
        if bodies:
            times = params.get("length", 1) if name == "scan" else 1
            for inner_products, inner_elements in map(operations, bodies):
                products += times * inner_products
                elements += times * inner_elements
        elif name == "dot_general":
            (axes, _), _ = params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            products += 2.0 * written * math.prod(shape[axis] for axis in axes)
        elif name == "conv_general_dilated":
            kernel = equation.invars[1].aval.shape
            outputs = kernel[params["dimension_numbers"].rhs_spec[0]]
            products += 2.0 * written * math.prod(kernel) / outputs
        elif name not in REARRANGED:
            elements += written
    return products, elements


def _bodies(value: Any) -> Iterator[Any]:
    """The programs that a parameter of an operation holds."""
    for part in value if isinstance(value, (tuple, list)) else (value,):
        body = getattr(part, "jaxpr", part)
        if hasattr(body, "eqns"):
            yield body
