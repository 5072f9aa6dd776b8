"""Arrays of jax that are spread over several devices: XLA divides the work as they are.

Jax's meshes may have "explicit" axes, along which every operation has to say how its result is
spread. What happens here (rows are taken, parameters become one vector) is XLA's to decide: such
arrays are seen through the same mesh with automatic axes, which moves nothing.
"""

from __future__ import annotations

import math
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import tree_leaves

from ksdmin._problem.arrays import Array


def platform_of(x: Array) -> str:
    """What kind of device it is on, or all of its devices are."""
    return str(next(iter(x.devices())).platform)


def is_spread(leaf: Any) -> bool:
    """Whether it is an array on several devices: cut to pieces, or copied."""
    return isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1


def is_on_host(leaf: Any) -> bool:
    """Whether numpy can read it where it is, and nothing else decides where it may go."""
    if not isinstance(leaf, jax.Array):
        return True
    on_cpu = not is_spread(leaf) and platform_of(leaf) == "cpu"
    return on_cpu and not jax.numpy.issubdtype(leaf.dtype, jax.dtypes.extended)


def committed_to(leaves: list[Any]) -> Any:
    """The device that the first of them has to stay on; None where jax may move all of them."""
    return next((leaf.device for leaf in leaves if getattr(leaf, "committed", False)), None)


def automatic(array: Array) -> Array:
    """The same array; along explicit axes of its mesh XLA may decide."""
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
    return jax.device_put(array)  # jax may put it where it is used


def spread(array: Array, like: Any) -> Array:
    """The array over the same devices as another, in the same way, also while jax traces."""
    if not is_spread(like):
        return array
    if isinstance(array, jax.core.Tracer):
        return constrained(array, _automatic(like.sharding))
    return jax.device_put(array, like.sharding)


def constrained(array: Array, sharding: NamedSharding | None) -> Array:
    """An array that is to be so spread, within a compiled function; None: as XLA likes."""
    if sharding is None:
        return array
    return jax.lax.with_sharding_constraint(array, sharding)  # type: ignore[no-untyped-call]


def over_rows(data: Any) -> NamedSharding | None:
    """How the rows of arrays are spread over devices; None where they are not cut along them."""
    for leaf in tree_leaves(data):
        if is_spread(leaf) and isinstance(leaf.sharding, NamedSharding):
            axes = leaf.sharding.spec[:1]
            if axes and axes[0] is not None:
                return NamedSharding(leaf.sharding.mesh, _spec(*axes))
    return None


def _spec(*axes: Any) -> PartitionSpec:
    return PartitionSpec(*axes)  # type: ignore[no-untyped-call]


def parts_of(sharding: NamedSharding) -> int:
    """Into how many parts the first axis is cut."""
    axes = sharding.spec[0]
    names = axes if isinstance(axes, tuple) else (axes,)
    return math.prod(sharding.mesh.shape[name] for name in names)
