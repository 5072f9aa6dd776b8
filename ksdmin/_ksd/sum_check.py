"""A sum in place of a mean over idx: noticed by what the first iteration computes anyway."""

from __future__ import annotations

import warnings

from scipy.optimize import OptimizeWarning

from ksdmin._ksd.krylov import Basis
from ksdmin._ksd.state import KSDRun, KSDState
from ksdmin._ksd.subspace import SubspacePoint

NEAR = 0.25  # of the number of samples: the relative deviation that sampling may explain


def warn_if_sum(run: KSDRun, state: KSDState, basis: Basis, origin: SubspacePoint) -> None:
    """Warn where value and slope at the start grow with the number of samples, as sums do.

    Those on A are compared with those on C. A mean has about the same on both; one whose value is
    near zero may have any ratio of values, but not that of slopes as well.
    """
    here, size_of = state.here, run.subsets.size_of
    size_A, size_C = size_of(here.idx), size_of(state.sets.C)
    if run.subsets.n is None or not size_A or not size_C:
        return
    if NEAR * size_A < size_C:  # chance may look like a sum
        return
    steepest = abs(basis.g_bar).argmax()
    slope = 0.0 if origin.slopes is None else float(origin.slopes[steepest])
    pairs = [(here.value, origin.loss), (float(basis.g_bar[steepest]), slope)]
    times = size_A / size_C
    if all(abs(on_A - times * on_C) < NEAR * abs(times * on_C) for on_A, on_C in pairs):
        warnings.warn(
            f"fun(x, idx) must be the mean over idx, not the sum: at x0 it is "
            f"{here.value / origin.loss:.3g} times as large on {size_A} samples as on {size_C}. "
            "Divide by the number of rows in idx (len(X[idx])), in jac and hessp as well",
            OptimizeWarning,
            stacklevel=2,
        )
