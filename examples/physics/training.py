"""What a method is given: one experiment on a device, as a problem of ksdmin's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import Bounds
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from examples.harness.net_training.point_recorder import PointRecorder
from examples.physics.experiment import Setting

FEW = 50  # samples of the evaluation that loads the device's libraries


@dataclass
class Training:
    """One run.

    Attributes
    ----------
    setting : Setting
        On the device, in the precision of the run.
    problem : BlockProblem
        What every method evaluates: on CUDA it replays captured graphs.
    recorder : PointRecorder
        Where the method reports its points.
    seed : int
        Of what a method draws.
    options : mapping
        The user's, which replace a method's own.
    """

    setting: Setting
    problem: Any
    recorder: PointRecorder
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def x0(self) -> Tensor:
        """Where the run starts."""
        return self.problem.x0

    @property
    def bounds(self) -> Bounds | None:
        """As SciPy has them."""
        box = self.setting.box()
        return None if box is None else Bounds(*(np.asarray(end.cpu(), float) for end in box))

    def assess(self, x: Tensor) -> dict[str, float]:
        """The loss and the error at a point; no part of any clock."""
        nn.utils.vector_to_parameters(x.to(self.x0), self.setting.net.parameters())
        return {
            "loss": self.problem.value(x.to(self.x0)),
            "error": self.setting.error(self.setting.net),
        }


Train = Callable[[Training], str]  # returns why it ended


def on_device(setting: Setting, device: torch.device, dtype: torch.dtype) -> Setting:
    """The same with its net and points there."""
    net = setting.net.to(device, dtype)
    residuals = [
        (r, tree_map(lambda part: part.to(device, dtype), data), weight)
        for r, data, weight in setting.residuals
    ]
    if setting.prediction is not None:
        setting.prediction.to(device, dtype)
    return replace(setting, net=net, residuals=residuals)


def load_libraries(setting: Setting) -> None:
    """Before the clock starts: the first evaluation on a device takes seconds.

    So does the first of torch's optimisers, for which it imports its compiler, and the first
    factorisation.
    """
    parameters = list(setting.net.parameters())
    torch.optim.SGD(parameters)
    for r, data, _ in setting.residuals:
        few = tree_map(lambda part: part[:FEW], data)
        loss = r(setting.net, few).square().mean()
        torch.autograd.grad(loss, parameters, allow_unused=True)
    one = torch.eye(FEW, dtype=parameters[0].dtype, device=parameters[0].device)
    torch.cholesky_solve(one[0][:, None], torch.linalg.cholesky(one @ one))
