"""Tests of what only newer versions of a library can do."""

import pytest
import torch


def needs_torch(major, minor, why):
    """Skip the test where torch is older."""
    have = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if have < (major, minor):
        pytest.skip(f"torch {torch.__version__}: {why}")
