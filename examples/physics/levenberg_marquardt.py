"""An exact Levenberg-Marquardt method: the rival that takes the whole Gauss-Newton matrix.

Each step solves (J^T J + damping) d = -J^T r with a Cholesky factor, of J^T J or, where there are
fewer residuals than parameters, of J J^T: d = -J^T (J J^T + damping)^{-1} r. The damping is changed
by Nielsen's form of Marquardt's rule. A step that is refused costs a factorisation and a value.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from examples.physics.residual_jacobian import ResidualJacobian
from examples.physics.training import Training

FIRST_DAMPING = 1e-3  # of the mean eigenvalue of the smaller matrix
MAX_REFUSED = 40  # steps in a row: the damping has grown beyond any use
LEAST_DAMPING = 1e-30


@dataclass
class Damping:
    """Nielsen's rule: gentle after good steps, ever stronger after bad ones."""

    value: float
    growth: float = 2.0

    def after_success(self, gain: float) -> None:
        """`gain` is the actual reduction by the predicted one."""
        self.value = max(self.value * max(1 / 3, 1 - (2 * gain - 1) ** 3), LEAST_DAMPING)
        self.growth = 2.0

    def after_refusal(self) -> None:
        self.value *= self.growth
        self.growth *= 2


class NormalEquations:
    """J and r at a point, as what the steps for any damping need.

    Parameters
    ----------
    jacobian : ResidualJacobian
        Of the setting.
    x : Tensor
        The point.
    """

    def __init__(self, jacobian: ResidualJacobian, x: Tensor) -> None:
        self._J: Tensor | None = None
        if jacobian.parameters <= jacobian.residuals:
            self._sum_over_chunks(jacobian, x)
        else:
            self._keep_all_rows(jacobian, x)

    def _sum_over_chunks(self, jacobian: ResidualJacobian, x: Tensor) -> None:
        self.gram = x.new_zeros(len(x), len(x))
        self.g = torch.zeros_like(x)
        for r, J in jacobian(x):
            self.gram.addmm_(J.T, J)
            self.g.addmv_(J.T, r)

    def _keep_all_rows(self, jacobian: ResidualJacobian, x: Tensor) -> None:
        self._J, self._r = x.new_empty(jacobian.residuals, len(x)), x.new_empty(jacobian.residuals)
        at = 0
        for r, J in jacobian(x):
            self._J[at : at + len(r)], self._r[at : at + len(r)] = J, r
            at += len(r)
        self.gram = self._J @ self._J.T
        self.g = self._J.T @ self._r

    def step(self, damping: float) -> Tensor | None:
        """The damped step; None where the matrix is not positive definite in this arithmetic."""
        damped = self.gram.clone()
        damped.diagonal().add_(damping)
        factor, info = torch.linalg.cholesky_ex(damped)
        if int(info) > 0:
            return None
        right = self.g if self._J is None else self._r
        solved = torch.cholesky_solve(right[:, None], factor)[:, 0]
        return -solved if self._J is None else -(self._J.T @ solved)

    def predicted_reduction(self, d: Tensor, damping: float) -> float:
        """Of |r|^2, by the linear model, for a step of `step`."""
        return float(d @ (damping * d - self.g))


def train_by_levenberg_marquardt(training: Training) -> str:
    """Until time is spent, or no damping gives a step that lowers the loss."""
    recorder, problem = training.recorder, training.problem
    x, box = training.x0.clone(), training.setting.box()
    recorder.start(x)
    jacobian = ResidualJacobian(training.setting)
    value, equations, damping, refused = problem.value(x), None, None, 0
    while refused < MAX_REFUSED and not recorder.spent():
        if equations is None:
            equations = NormalEquations(jacobian, x)
            recorder.work.count(gradients=1)  # one reverse pass over the points
        if damping is None:
            damping = Damping(FIRST_DAMPING * float(equations.gram.diagonal().mean()))
        d = equations.step(damping.value)
        trial = x if d is None else _inside(x + d, box)
        new = problem.value(trial)
        recorder.work.count(values=1)
        if d is not None and new < value:
            damping.after_success((value - new) / equations.predicted_reduction(d, damping.value))
            x, value, equations, refused = trial, new, None, 0
            recorder.work.iterations += 1
        else:
            damping.after_refusal()
            refused += 1
        recorder.see(x)
    recorder.see(x, last=True)
    return recorder.spent() or "No damping gives a step that lowers the value."


def _inside(x: Tensor, box: tuple[Tensor, Tensor] | None) -> Tensor:
    return x if box is None else torch.clamp(x, *box)
