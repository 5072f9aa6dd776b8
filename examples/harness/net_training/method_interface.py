"""What a training method is: its signature, its settings and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from examples.harness.net_training.point_recorder import PointRecorder
from examples.harness.net_training.training import Training


@dataclass(frozen=True)
class Settings:
    """The settings of a run besides its seed and seconds.

    Attributes
    ----------
    curvature : str
        Of KSD and HF.
    precision : {"highest", "high"}
        Float32 matrix products, or TF32.
    krylov_dim : int
        The paper's K for this row; the default chooses its own.
    hf_share : float
        The share of the samples in HF's curvature set.
    hf_damping : float
        HF's first lambda.
    rate : float or None
        Of a first-order method.
    options : mapping
        The user's, which replace the method's defaults.
    profile : bool
        Whether the parts of the cost are timed, which makes the device wait for each.
    """

    curvature: str
    precision: str
    krylov_dim: int
    hf_share: float
    hf_damping: float
    rate: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    profile: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a run ended; where it was profiled, the seconds of each part of the cost."""

    message: str
    shares: dict[str, float] | None = None


@dataclass(frozen=True)
class Method:
    """A training method.

    Attributes
    ----------
    train : callable
        (training, recorder, settings) -> outcome.
    precision : str
        The one it does best with on a GPU.
    has_curvature : bool
        Whether there is a curvature matrix to choose.
    rates : mapping or None
        Of a first-order method, the grid for each task.
    """

    train: Callable[[Training, PointRecorder, Settings], Outcome]
    precision: str
    has_curvature: bool = False
    rates: Mapping[str, tuple[float, ...]] | None = None

    def precision_on(self, device: torch.device) -> str:
        """Its own on a GPU; without one there is no TF32."""
        return self.precision if device.type == "cuda" else "highest"
