"""Curvature providers: names, outputs that would overflow. Their numbers: by library."""

import numpy as np
import pytest

from ksdmin._adapters import curvature as _curvature


@pytest.mark.parametrize("name", ["softmax_cross_entropy", "binary_cross_entropy"])
def test_large_outputs(backend, name):
    Z = backend.asarray([[1e3, -1e3, 0.0], [0.0, 1e3, 1e3]])
    times = getattr(_curvature, name)(Z, Z, backend.asarray([1.0, 1.0]))
    assert np.isfinite(backend.to_numpy(times(Z / 1e3))).all()


def test_outputs_that_are_numbers():
    r = np.array([1.0, 2.0])
    assert _curvature.outer_product(r)(np.array([3.0, 1.0])).tolist() == [3.0, 4.0]
