"""Jax in float64 or float32, for a test or a file."""

import pytest

from tests.adapters.functional.backends import jax_settings


@pytest.fixture
def x64():
    with jax_settings(x64=True):
        yield


@pytest.fixture
def x32():
    with jax_settings(x64=False):
        yield
