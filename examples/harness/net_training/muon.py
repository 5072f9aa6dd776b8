"""Muon: momentum whose matrices are made orthogonal, and Adam for what is no matrix."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from examples.harness.net_training.adam_and_nesterov import Adam

MOMENTUM = 0.95
COEFFICIENTS = 3.4445, -4.7750, 2.0315  # of the Newton-Schulz iteration, as in torch.optim.Muon
ITERATIONS, TINY = 5, 1e-7
AS_ADAM = 0.2  # the size of a step's entries, so that rates mean what they mean for Adam


class Muon:
    """What torch.optim.Muon does, in steps that can be captured, with kernels as matrices too."""

    def __init__(self, variables: list[nn.Parameter], rate: float, decay: str | None) -> None:
        self._variables = variables
        self._matrices = [variable for variable in variables if variable.ndim >= 2]
        self._others = Adam([v for v in variables if v.ndim < 2], rate, decay)
        self._momenta = [torch.zeros_like(matrix) for matrix in self._matrices]

    @property
    def state(self) -> list[Tensor]:
        """What starts at zero."""
        return [*self._momenta, *self._others.state]

    @torch.no_grad()
    def __call__(self, gradient: list[Tensor]) -> None:
        slopes = [slope for slope in gradient if slope.ndim >= 2]
        for matrix, momentum, slope in zip(self._matrices, self._momenta, slopes, strict=True):
            momentum.lerp_(slope, 1 - MOMENTUM)
            ahead = slope.lerp(momentum, MOMENTUM).flatten(1)
            scale = AS_ADAM * max(ahead.shape) ** 0.5
            step = scale * orthogonalised(ahead).to(matrix.dtype).view_as(matrix)
            matrix.sub_(self._others.rate * step)
        self._others([slope for slope in gradient if slope.ndim < 2])

    def plan(self, step: int, share: float) -> None:
        """The rate for what follows."""
        self._others.plan(step, share)

    def parameters(self) -> list[Tensor]:
        """What the method would return now."""
        return list(self._variables)


def orthogonalised(matrix: Tensor) -> Tensor:
    """About U V^T of its singular value decomposition; on a GPU in bfloat16."""
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    X = matrix.mT if tall else matrix
    X = X.bfloat16() if X.is_cuda else X
    X = X / X.norm().clamp(min=TINY)
    for _ in range(ITERATIONS):
        gram = X @ X.mT
        X = a * X + (b * gram + c * gram @ gram) @ X
    return X.mT if tall else X
