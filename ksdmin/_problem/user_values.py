"""What a user gives or returns, as the vector or the number that it should be."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj, is_jax_array, is_numpy_array

from ksdmin._problem.arrays import Array, detached
from ksdmin._problem.namespace import namespace_of


def as_vector(x0: Any) -> Array:
    """`x0` as a real floating vector, in its own namespace; nothing is copied needlessly."""
    if not is_array_api_obj(x0) or is_numpy_array(x0):
        x0 = np.atleast_1d(np.asarray(x0))
        if x0.dtype.kind in "iub":
            x0 = x0.astype(np.float64)
        x0 = x0.astype(x0.dtype.newbyteorder("="), copy=False)
        single, double = np.dtype(np.float32), np.dtype(np.float64)
    else:
        xp = namespace_of(x0)
        x0 = detached(x0)
        x0 = xp.reshape(x0, (1,)) if x0.ndim == 0 else x0
        if xp.isdtype(x0.dtype, ("bool", "integral")):
            # jax has no float64 unless asked for it
            x0 = xp.astype(x0, xp.asarray(0.0).dtype if is_jax_array(x0) else xp.float64)
        single, double = xp.float32, xp.float64
    if x0.ndim != 1:
        raise ValueError("'x0' must only have one dimension.")
    if x0.shape[0] == 0:
        raise ValueError("'x0' is empty: there is nothing to minimise over")
    if x0.dtype not in (single, double):
        raise TypeError(f"x0 has dtype {x0.dtype}; expected float32 or float64: convert it first")
    return x0


def as_scalar(value: Any, origin: str) -> float:
    """The value that user code (`origin`) returned, as a Python float."""
    if type(value) is float or type(value) is np.float64:
        return float(value)
    shape = tuple(getattr(value, "shape", ()))
    if math.prod(shape) == 1:  # what goes wrong in here (a CUDA error, say) is not about shape
        value = value.item() if hasattr(value, "item") else value
        if not isinstance(value, (str, bytes)):
            with suppress(TypeError):  # None, a complex number
                return float(value)
    what = f"an array of shape {shape}" if shape else f"a {type(value).__name__}"
    if origin == "fun" and isinstance(value, (tuple, list)) and len(value) == 2:
        what += ": (value, gradient)? then pass jac=True"
    raise ValueError(
        f"The user-provided objective function must return a scalar value: {origin} returned {what}"
    )
