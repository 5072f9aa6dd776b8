"""Which library an array is of, as the array API has it."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, is_jax_array


def namespace_of(x: Any) -> Any:
    """The namespace of an array.

    Of jax's it is asked here: array_api_compat would make another array to ask, for which jax
    compiles two functions.
    """
    return x.__array_namespace__() if is_jax_array(x) else array_namespace(x)
