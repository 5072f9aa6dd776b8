"""The leaves of a tree of parameters in jax: floating-point arrays are varied, others are kept.

Whole numbers, truth values, random keys and functions, which modules of equinox have among their
leaves, are put back as they are. A Python float is varied in a dict, list or tuple; in any other
node (a module) it is a setting, such as the rate of dropout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.tree_util import (
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_map,
    tree_unflatten,
)

from ksdmin._adapters.functional.jax_programs import Program
from ksdmin._adapters.functional.jax_sharding import (
    automatic,
    committed_to,
    is_on_host,
    spread,
)
from ksdmin._problem.arrays import TRACED, Array, is_traced


def refuse_traced(*trees: Any) -> None:
    """Refuse to go on within jax.jit and the like: nothing has a value there."""
    within_jit = is_traced(jnp.asarray(np.float32(0)))
    if within_jit or any(map(is_traced, tree_leaves(trees))):
        raise TypeError(TRACED)


def flatten(tree: Any) -> tuple[Array, Callable[[Array], Any]]:
    """The varied leaves as one vector, and the inverse function, which puts the others back."""
    leaves, structure = tree_flatten(tree)
    varied = _varied(tree)
    parts = [leaf for leaf, is_varied in zip(leaves, varied, strict=True) if is_varied]
    flat, unravel = _ravelled([automatic(part) for part in parts])

    def unflatten(x: Array) -> Any:
        pieces = map(spread, unravel(x), parts)  # over devices as they were
        return tree_unflatten(
            structure,
            [
                next(pieces) if is_varied else leaf
                for leaf, is_varied in zip(leaves, varied, strict=True)
            ],
        )

    return flat, unflatten


def paths(tree: Any) -> list[tuple[str, tuple[int, ...]]]:
    """The path of each varied leaf, such as ``layers.0.w``, and its shape."""
    leaves, _ = tree_flatten_with_path(tree)
    return [
        (".".join(map(_word, path)), tuple(np.shape(leaf)))
        for (path, leaf), is_varied in zip(leaves, _varied(tree), strict=True)
        if is_varied
    ]


def _word(step: Any) -> str:
    """A step of a path: the key of a dict, the position in a list, the name of a field."""
    words = (getattr(step, field, None) for field in ("key", "idx", "name"))
    return str(next((word for word in words if word is not None), step))


def _ravelled(arrays: list[Any]) -> tuple[Array, Callable[[Array], list[Array]]]:
    """The arrays as one vector, and the way back.

    Those of the host are joined there; others by one compiled function, not one for each array.
    """
    made: list[Callable[[Array], list[Array]]] = []

    def ravel(arrays: list[Any]) -> Array:
        flat, unravel = ravel_pytree(arrays)
        made.append(unravel)
        return flat

    if not all(map(is_on_host, arrays)):
        return Program(ravel)(arrays), made[-1]
    dtype = jax.eval_shape(ravel, arrays).dtype
    flat = np.concatenate([np.ravel(np.asarray(part)).astype(dtype) for part in arrays or [[]]])
    return jax.device_put(flat, committed_to(arrays)), made[-1]


def as_floats(tree: Any) -> Any:
    """The tree with its whole numbers as floating-point arrays."""
    return tree_map(lambda leaf: jnp.asarray(leaf, float) if _is_whole(leaf) else leaf, tree)


def _varied(tree: Any) -> list[bool]:
    """For each leaf, whether it is varied."""
    outer = tree_leaves(tree, is_leaf=lambda node: not isinstance(node, (Mapping, tuple, list)))
    return [
        is_varied
        for part in outer
        for is_varied in (
            [True] if isinstance(part, float) else map(_is_floating, tree_leaves(part))
        )
    ]


def _is_floating(leaf: Any) -> bool:
    """Whether it is an array of floating-point numbers (complex ones are refused later)."""
    is_array = isinstance(leaf, (np.ndarray, np.generic, jax.Array))
    return is_array and bool(jnp.issubdtype(leaf.dtype, jnp.inexact))


def _is_whole(leaf: Any) -> bool:
    if isinstance(leaf, (np.ndarray, np.generic, jax.Array)):
        return bool(jnp.issubdtype(leaf.dtype, jnp.integer)) or leaf.dtype == bool
    return isinstance(leaf, int)
