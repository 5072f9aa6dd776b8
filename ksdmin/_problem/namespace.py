"""Which library an array is of, as the array API has it."""

from __future__ import annotations

import sys
from typing import Any

from array_api_compat import array_namespace, is_jax_array

TRACED = (
    "minimize cannot run within jax.jit, jax.vmap or jax.grad, where arrays have no values yet: "
    "call it outside of them"
)


def is_traced(x: Any) -> bool:
    """Whether it stands for an array of jax's in a function that is being traced."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.core.Tracer)


def namespace_of(x: Any) -> Any:
    """The namespace of an array.

    Of jax's it is asked here: array_api_compat would make another array to ask, for which jax
    compiles two functions.
    """
    return x.__array_namespace__() if is_jax_array(x) else array_namespace(x)
