"""Arrays of jax: spread over devices, arguments of compiled functions, leaves of parameters."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import chain, compress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import (
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_map,
    tree_unflatten,
)

from ksdmin._libraries.jax import is_traced
from ksdmin._problem.arrays import TRACED, Array

# Arrays that are sharded over several devices: XLA divides the work in the same way. Jax's meshes
# may have "explicit" axes, along which every operation has to say how its result is sharded. Here
# (taking rows, joining parameters) XLA should decide that: such arrays are viewed on the same mesh
# with automatic axes, which moves no data


def platform_of(x: Array) -> str:
    """The platform of its device or devices."""
    return str(next(iter(x.devices())).platform)


def is_spread(leaf: Any) -> bool:
    """Whether it is an array on several devices, split or copied."""
    return isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1


def is_on_host(leaf: Any) -> bool:
    """Whether numpy can read it in place, and it is not committed to a device."""
    if not isinstance(leaf, jax.Array):
        return True
    on_cpu = not is_spread(leaf) and platform_of(leaf) == "cpu"
    return on_cpu and not jax.numpy.issubdtype(leaf.dtype, jax.dtypes.extended)


def is_elsewhere(leaf: Any) -> bool:
    """Whether it is an array, but not on the device where jax computes by default."""
    return isinstance(leaf, jax.Array) and leaf.device != jax.devices()[0]


def committed_to(leaves: list[Any]) -> Any:
    """The device to which the first of them is committed; None if jax may move all of them."""
    return next((leaf.device for leaf in leaves if getattr(leaf, "committed", False)), None)


def automatic(array: Array) -> Array:
    """The same array, with automatic instead of explicit axes of its mesh."""
    return jax.device_put(array, _automatic(array.sharding)) if is_spread(array) else array


def _automatic(sharding: Any) -> Any:
    """The same sharding without explicit axes (older versions of jax have none)."""
    if not isinstance(sharding, NamedSharding) or not getattr(sharding.mesh, "explicit_axes", ()):
        return sharding
    # Without axis_types, they are automatic
    return NamedSharding(Mesh(sharding.mesh.devices, sharding.mesh.axis_names), sharding.spec)


def copied_like(array: Any, x: Array) -> Array:
    """An array of the host on the device of `x`, or on each of its devices."""
    if not is_spread(x):
        return jax.device_put(array, x.device)
    if isinstance(x.sharding, NamedSharding):
        return jax.device_put(array, NamedSharding(x.sharding.mesh, _spec()))
    return jax.device_put(array)  # jax may place it where it is used


def spread(array: Array, like: Any) -> Array:
    """The array over the same devices as another, in the same way, also while jax traces."""
    if not is_spread(like):
        return array
    if isinstance(array, jax.core.Tracer):
        return constrained(array, _automatic(like.sharding))
    return jax.device_put(array, like.sharding)


def constrained(array: Array, sharding: NamedSharding | None) -> Array:
    """An array with this sharding, within a compiled function; None: XLA decides."""
    if sharding is None:
        return array
    return jax.lax.with_sharding_constraint(array, sharding)  # type: ignore[no-untyped-call]


def over_rows(data: Any) -> NamedSharding | None:
    """How the rows of arrays are sharded over devices; None if they are not."""
    for leaf in tree_leaves(data):
        if is_spread(leaf) and isinstance(leaf.sharding, NamedSharding):
            axes = leaf.sharding.spec[:1]
            if axes and axes[0] is not None:
                return NamedSharding(leaf.sharding.mesh, _spec(*axes))
    return None


def _spec(*axes: Any) -> PartitionSpec:
    return PartitionSpec(*axes)  # type: ignore[no-untyped-call]


def parts_of(sharding: NamedSharding) -> int:
    """Into how many parts the first axis is split."""
    axes = sharding.spec[0]
    names = axes if isinstance(axes, tuple) else (axes,)
    return math.prod(sharding.mesh.shape[name] for name in names)


# Compiled functions, each compiled once, even if several problems have the same one. ``jax.jit``
# compiles again for every function object. Two problems of one model, such as two runs from
# different parameters, would compile everything twice. Tracing is cheap: so each function is traced
# and lowered, and a program compiled from the same text is used again


# Programs kept for later problems; those in use stay with their problems anyway.
KEPT_PROGRAMS = 128
# Options of XLA for programs that take longer to compile than to run, on a CPU: compiling takes
# half as long (jax 0.10, aarch64), and a call between a third less and a seventh more. With
# optimization level 0 a call takes twice as long.
QUICK = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}

_kept: OrderedDict[str, Any] = OrderedDict()

Flat = Callable[[list[Any]], list[Array]]
"""The leaves of the arguments -> the leaves of the result."""


class Program:
    """A function of trees of arrays, compiled for each of their structures and shapes."""

    def __init__(
        self,
        function: Callable[..., Any],  # what is traced: a pure function
        # Of XLA. Where its version does not know one of them, it has to do without all.
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.function, self._options = function, dict(options or {})
        self._known: dict[Any, tuple[Flat, Any]] = {}

    def __call__(self, *args: Any) -> Any:
        if jax.config.jax_disable_jit:  # type: ignore[attr-defined]
            return self.function(*args)  # for a debugger
        leaves, structure = tree_flatten(args)
        key = structure, tuple(map(_kind, leaves))
        if key not in self._known:
            self._known[key] = self._compiled(leaves, structure)
        run, made = self._known[key]
        return tree_unflatten(made, run(leaves))

    def _compiled(self, leaves: list[Any], structure: Any) -> tuple[Flat, Any]:
        lowered, constants, made = self._lowered(leaves, structure)
        compiled = _compiled_once(lowered, leaves, self._options)
        return lambda leaves: compiled(constants, leaves), made

    def lower(self, *args: Any) -> Any:
        """What is compiled for arguments like these, for inspection."""
        return self._lowered(*tree_flatten(args))[0]

    def _lowered(self, leaves: list[Any], structure: Any) -> tuple[Any, list[Array], Any]:
        """The function, the arrays that it closes over as its first argument; and its result."""

        def flat(*leaves: Any) -> Any:
            return self.function(*tree_unflatten(structure, leaves))

        traced, shapes = jax.make_jaxpr(flat, return_shape=True)(*leaves)
        if any(map(is_traced, traced.consts)):
            raise TypeError(TRACED)
        constants = [jax.numpy.asarray(part) for part in traced.consts]

        def with_constants(constants: list[Array], leaves: list[Any]) -> list[Array]:
            return jax.core.eval_jaxpr(traced.jaxpr, constants, *leaves)

        _, made = tree_flatten(shapes)
        # unused arguments stay: functions that use others may have the same text
        compiling = jax.jit(with_constants, keep_unused=True)
        return compiling.lower(constants, leaves), constants, made


def _kind(leaf: Any) -> Any:
    if is_spread(leaf):
        return leaf.shape, leaf.dtype, leaf.sharding
    return (leaf.shape, leaf.dtype) if hasattr(leaf, "dtype") else type(leaf)


def _compiled_once(lowered: Any, leaves: list[Any], options: dict[str, Any]) -> Any:
    """The compiled program; an earlier one, if its text is the same."""
    devices = {str(leaf.sharding) for leaf in filter(is_elsewhere, leaves)}
    settings = sorted(jax.config.values.items(), key=str)
    text = (lowered.as_text(), sorted(devices), settings, sorted(options.items()))
    digest = hashlib.sha256(repr(text).encode()).hexdigest()
    if digest not in _kept:
        _kept[digest] = _compiled(lowered, options)
    _kept.move_to_end(digest)
    if len(_kept) > KEPT_PROGRAMS:
        _kept.popitem(last=False)
    return _kept[digest]


def _compiled(lowered: Any, options: dict[str, Any]) -> Any:
    try:
        return lowered.compile(compiler_options=options)
    except RuntimeError as error:
        if "compile option" not in str(error):
            raise
        return lowered.compile()


# The leaves of a tree of parameters: floating-point arrays are varied, others are kept. Whole
# numbers, truth values, random keys and functions, which modules of equinox have among their
# leaves, are put back as they are. A Python float is varied in a dict, list or tuple; in any other
# node (a module) it is a setting, such as the rate of dropout


def refuse_traced(*trees: Any) -> None:
    """Raise within jax.jit and the like, where nothing has a value."""
    within_jit = is_traced(jnp.asarray(np.float32(0)))
    if within_jit or any(map(is_traced, tree_leaves(trees))):
        raise TypeError(TRACED)


def flatten(tree: Any) -> tuple[Array, Callable[[Array], Any]]:
    """The varied leaves as one vector, and the inverse function, which restores the others."""
    tree = _with_varied(tree)
    leaves, structure = tree_flatten(tree)
    varied = _varied(tree)
    parts = list(compress(leaves, varied))
    flat, unravel = _ravelled([automatic(part) for part in parts])

    def unflatten(x: Array) -> Any:
        pieces = map(spread, unravel(x), parts)  # with the sharding that they had
        made = (next(pieces) if v else leaf for leaf, v in zip(leaves, varied, strict=True))
        return tree_unflatten(structure, made)

    return flat, unflatten


def paths(tree: Any) -> list[tuple[str, tuple[int, ...]]]:
    """The path of each varied leaf, such as ``layers.0.w``, and its shape."""
    tree = _with_varied(tree)
    leaves, _ = tree_flatten_with_path(tree)
    varied = compress(leaves, _varied(tree))
    return [(".".join(map(_word, path)), tuple(np.shape(leaf))) for path, leaf in varied]


def _word(step: Any) -> str:
    """A part of a path: the key of a dict, the position in a list, the name of a field."""
    words = (getattr(step, field, None) for field in ("key", "idx", "name"))
    return str(next((word for word in words if word is not None), step))


def _ravelled(arrays: list[Any]) -> tuple[Array, Callable[[Array], list[Array]]]:
    """The arrays as one vector, and the inverse.

    Host arrays are joined on the host; others by one compiled function, not one for each array.
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


def _with_varied(tree: Any) -> Any:
    """The tree; if nothing in it is varied, with its whole numbers as floating-point arrays."""
    if any(map(np.size, compress(tree_leaves(tree), _varied(tree)))):
        return tree
    return tree_map(lambda leaf: jnp.asarray(leaf, float) if _is_whole(leaf) else leaf, tree)


def _varied(tree: Any) -> list[bool]:
    """For each leaf, whether it is varied."""
    outer = tree_leaves(tree, is_leaf=lambda node: not isinstance(node, (Mapping, tuple, list)))
    parts = ([True] if isinstance(u, float) else map(_is_floating, tree_leaves(u)) for u in outer)
    return list(chain.from_iterable(parts))


def _is_floating(leaf: Any) -> bool:
    """Whether it is an array of floating-point numbers (complex ones are refused later)."""
    is_array = isinstance(leaf, (np.ndarray, np.generic, jax.Array))
    return is_array and bool(jnp.issubdtype(leaf.dtype, jnp.inexact))


def _is_whole(leaf: Any) -> bool:
    if isinstance(leaf, (np.ndarray, np.generic, jax.Array)):
        return bool(jnp.issubdtype(leaf.dtype, jnp.integer)) or leaf.dtype == bool
    return isinstance(leaf, int)
