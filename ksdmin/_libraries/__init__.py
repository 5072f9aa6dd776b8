"""What arrays of torch and jax need beyond the array API: a file each, which imports the library.

The core imports such a file when it meets an array of that library, and names no library itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from array_api_compat import is_jax_array, is_torch_array

LIBRARIES = ("torch", "jax")


def library_of(x: Any) -> str | None:
    """The name of the library of an array, if there is a file for it."""
    return "torch" if is_torch_array(x) else "jax" if is_jax_array(x) else None


def file_of(library: str | None) -> Any:
    """The file for a library; None where there is none."""
    return import_module(f"{__name__}.{library}") if library in LIBRARIES else None
