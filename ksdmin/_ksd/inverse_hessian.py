"""`res.hess_inv`: what a run has learned of the curvature, as an operator."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from ksdmin._ksd.quasi_newton import QuasiNewton
from ksdmin._ksd.state import KSDRun, KSDState
from ksdmin._problem.arrays import Small, Space
from ksdmin._problem.user_values import counted


class InverseHessian(LinearOperator):  # type: ignore[misc]
    """The inverse of the quasi-Newton model: rough, but for the directions of the last steps.

    As SciPy's ``LbfgsInvHessProduct``, with ``todense``; but outside of the span of its pairs it
    is scaled by the last one. Nothing is computed before it is used.

    Parameters
    ----------
    model : QuasiNewton
        With a base, or at least one pair.
    space : Space
        Of numpy vectors.
    """

    def __init__(self, model: QuasiNewton, space: Space) -> None:
        super().__init__(np.dtype(np.float64), (space.n, space.n))
        self._model, self._space = model, space

    def __repr__(self) -> str:
        n, pairs = self.shape[0], counted(self.n_corrs, "curvature pair")
        return (
            f"<{n} x {n} InverseHessian: a rough approximation from {pairs} of the run. For "
            "standard errors take ksdmin.covariance(res)>"
        )

    @property
    def n_corrs(self) -> int:
        """How many pairs it is made of."""
        return len(self._model)

    def _matvec(self, v: Any) -> Small:
        return np.asarray(self._solve(np.asarray(v, dtype=np.float64).reshape(-1)))

    @cached_property
    def _solve(self) -> Callable[[Small], Small]:
        return self._model.preconditioner(self._space).solve

    def _adjoint(self) -> InverseHessian:
        return self

    def todense(self) -> Small:
        """The matrix, (n, n)."""
        return np.stack([self._matvec(unit) for unit in np.eye(self.shape[0])])


def learned_curvature(run: KSDRun, state: KSDState) -> dict[str, InverseHessian]:
    """The field of the result; none where nothing was learned, or where it is not on the host.

    A result must not keep a device's memory, nor copy all of it to the host unasked.
    """
    learned = run.space.numpy and (len(state.model) or state.model.base is not None)
    return {"hess_inv": InverseHessian(state.model, run.space)} if learned else {}
