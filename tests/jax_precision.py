"""Jax in single or double precision, for as long as a test needs it."""

from contextlib import contextmanager

import pytest


@contextmanager
def jax_in(dtype):
    """Jax, whose arrays have this dtype ("float32" or "float64"); then as it was."""
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", dtype == "float64")
    try:
        yield jax
    finally:
        jax.config.update("jax_enable_x64", before)
