"""How the first-order methods change parameters by a gradient: Adam, Nesterov's momentum."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn

RAISED_EVERY = 250  # steps, the momentum
CALM, CALM_MOMENTUM = 0.02, 0.9  # the last share of the time has less momentum


class Update(Protocol):
    """How parameters change by their gradient."""

    state: list[Tensor]

    def __call__(self, gradient: list[Tensor]) -> None:
        """Change the parameters."""

    def plan(self, step: int, share: float) -> None:
        """What follows is step `step`, with this share of the time gone."""

    def parameters(self) -> list[Tensor]:
        """What the method would return now."""


class Adam:
    """torch's Adam: fused, and its rate constant or falling to zero along a cosine.

    Attributes
    ----------
    rate : Tensor
        The rate of the next step, on the device.
    """

    def __init__(self, variables: list[nn.Parameter], rate: float, decay: str | None) -> None:
        if decay not in (None, "cosine"):
            raise ValueError(f"option decay={decay!r}: expected 'cosine', or none")
        on_gpu = variables[0].is_cuda
        self._variables, self._first_rate, self._decay = variables, rate, decay
        self.rate = torch.tensor(rate, device=variables[0].device)
        self._optimizer = torch.optim.Adam(
            variables, lr=self.rate if on_gpu else rate, fused=on_gpu, capturable=on_gpu
        )

    @property
    def state(self) -> list[Tensor]:
        """What starts at zero."""
        return [value for state in self._optimizer.state.values() for value in state.values()]

    def __call__(self, gradient: list[Tensor]) -> None:
        for variable, slope in zip(self._variables, gradient, strict=True):
            variable.grad = slope
        self._optimizer.step()

    def plan(self, step: int, share: float) -> None:
        if self._decay == "cosine":
            rate = self._first_rate * (1 + math.cos(math.pi * min(share, 1.0))) / 2
            self.rate.fill_(rate)
            if not self.rate.is_cuda:
                self._optimizer.param_groups[0]["lr"] = rate

    def parameters(self) -> list[Tensor]:
        return list(self._variables)


class Nesterov:
    """Nesterov's momentum with the schedule of Sutskever et al. (2013).

    The variables are the points x + momentum v at which the gradient is taken.
    """

    def __init__(self, variables: list[nn.Parameter], rate: float, momentum: float) -> None:
        self._variables, self._step_size, self._largest = variables, rate, momentum
        self.state = [torch.zeros_like(variable) for variable in variables]
        self._momentum = torch.tensor(0.5, device=variables[0].device)

    @torch.no_grad()
    def __call__(self, gradient: list[Tensor]) -> None:
        torch._foreach_mul_(self.state, self._momentum)
        torch._foreach_add_(self.state, gradient, alpha=-self._step_size)
        torch._foreach_add_(self._variables, gradient, alpha=-self._step_size)
        torch._foreach_add_(self._variables, torch._foreach_mul(self.state, self._momentum))

    def plan(self, step: int, share: float) -> None:
        momentum = min(1 - 0.5 / (step // RAISED_EVERY + 1), self._largest)
        if share > 1 - CALM:
            momentum = min(momentum, CALM_MOMENTUM)
        self._momentum.fill_(momentum)

    @torch.no_grad()
    def parameters(self) -> list[Tensor]:
        ahead = torch._foreach_mul(self.state, self._momentum)
        return list(torch._foreach_sub(list(self._variables), list(ahead)))
