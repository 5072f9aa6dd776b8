"""The weights of samples, as the user gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ksdmin._problem.arrays import to_host


def as_weights(sample_weight: Any, n: int) -> npt.NDArray[np.float64]:
    """``sample_weight=``, checked: `n` numbers that are not negative, and not all zero."""
    given = sample_weight if hasattr(sample_weight, "shape") else np.asarray(sample_weight)
    weights = np.asarray(to_host(given), dtype=np.float64)
    if weights.shape != (n,):
        raise ValueError(
            f"sample_weight has shape {weights.shape}: expected one number for each of the {n} "
            f"samples, shape ({n},)"
        )
    if not np.isfinite(weights).all() or (weights < 0).any():
        bad = int(np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))[0])
        raise ValueError(
            f"sample_weight[{bad}] is {weights[bad]}: expected finite numbers that are not negative"
        )
    if not weights.any():
        raise ValueError("sample_weight: every weight is zero, so that there is nothing to fit")
    return weights
