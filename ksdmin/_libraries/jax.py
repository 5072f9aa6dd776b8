"""Arrays of jax: how the host sends them, and whether they have values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

device_put = jax.device_put


def is_traced(x: Any) -> bool:
    """Whether `x` is a tracer, which has no value yet."""
    return isinstance(x, jax.core.Tracer)


def zeros(n: int, dtype: str, device: str) -> Any:
    """A vector of zeros on the device that jax prefers."""
    return jnp.zeros(n, dtype=dtype)
