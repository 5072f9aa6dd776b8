"""Whether two results are of the same run."""

import numpy as np

import ksdmin
from tests.ksd.snapshots import snapshot

FIELDS = ("x", "fun", "jac", "nit", "nfev", "njev", "nhev", "status", "passes", "message")


def assert_same(one, other):
    """Bit for bit, but for the seconds."""
    for name in FIELDS:
        assert snapshot(one[name]) == snapshot(other[name]), name
    for name in ksdmin.History.columns:
        if name != "seconds":
            np.testing.assert_array_equal(one.history[name], other.history[name], name)
    assert snapshot(one.get("allvecs")) == snapshot(other.get("allvecs"))
    for name in ("average", "validation"):
        chosen = [snapshot(list((res.get(name) or {}).values())) for res in (one, other)]
        assert chosen[0] == chosen[1], name
