"""Either library under test."""

import pytest

from tests.adapters.functional.backends import Backend, autograd_backend, jax_settings


@pytest.fixture(params=["autograd", "jax"])
def backend(request):
    """Either library, in float64."""
    if request.param == "autograd":
        pytest.importorskip("autograd")
        yield autograd_backend()
        return
    jax = pytest.importorskip("jax")
    with jax_settings(x64=True):
        yield Backend("jax", jax.numpy)
