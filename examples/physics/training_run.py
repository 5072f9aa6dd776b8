"""One run: from its configuration to what is stored of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from examples.harness.net_training.point_recorder import PointRecorder
from examples.harness.provenance import processor, provenance
from examples.harness.store import Run
from examples.physics.experiment import Setting, picture_grid
from examples.physics.experiments import EXPERIMENTS
from examples.physics.methods import METHODS
from examples.physics.run_config import Config
from examples.physics.training import Training, load_libraries, on_device

COLUMNS = ("seconds", "iterations", "passes", "loss", "error")  # of what is kept of a trace
PICTURED_SEED = 0  # one run of each method is enough for a picture


def perform(
    config: Config,
    device: torch.device,
    commit: str | None = None,
    show: Callable[[float], Any] = lambda seconds: None,
) -> Run:
    """Train, and compute the errors of the points that were kept."""
    made = EXPERIMENTS[config.problem].make(config.seed, config.small)
    setting = on_device(made, device, getattr(torch, config.dtype))
    load_libraries(setting)
    recorder = PointRecorder(config.seconds, config.passes or math.inf, show, clock_of(device))
    training = Training(setting, setting.problem(), recorder, config.seed, config.options)
    message = METHODS[config.method](training)
    trace = recorder.trace(training.assess)
    run = {
        "config": asdict(config),
        **provenance("torch", hardware=hardware_of(device), commit=commit),
        "parameters": len(training.x0),
        "message": message,
        "trace": {name: trace[name] for name in COLUMNS},
    }
    if config.seed == PICTURED_SEED:
        run["picture"] = error_picture(setting)
    return run


def clock_of(device: torch.device) -> Callable[[], float]:
    """Without a GPU the processor's own seconds, which other programs change little."""
    return time.perf_counter if device.type == "cuda" else time.process_time


def hardware_of(device: torch.device) -> str:
    """The GPU, or else the processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor()


@torch.no_grad()
def error_picture(setting: Setting) -> list[float]:
    """The net minus the solution on a grid, with few digits; the net is at its last point."""
    points = picture_grid(setting)
    errors = _outputs(setting.net, points) - setting.exact(points)
    return [float(f"{error:.3g}") for error in errors.flatten().tolist()]


def _outputs(net: nn.Module, points: torch.Tensor) -> torch.Tensor:
    return net(points.to(next(net.parameters()))).double().cpu()
