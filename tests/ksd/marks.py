"""Marks that the tests of the method share."""

import pytest

torch = pytest.importorskip("torch")


def on_cuda(test):
    skip = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    return pytest.mark.cuda(skip(test))
