"""One run: from its configuration to what is stored of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
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

SUMMED = ("seconds", "iterations", "passes")  # over slabs of time
COLUMNS = (*SUMMED, "loss", "error")  # of what is kept of a trace
PICTURED_SEED = 0  # one run of each method is enough for a picture
MOST_AXES = 2  # of a picture


def perform(
    config: Config,
    device: torch.device,
    commit: str | None = None,
    show: Callable[[float], Any] = lambda seconds: None,
) -> Run:
    """Train, and compute the errors of the points that were kept."""
    following: Callable[[], Setting] | None
    following = partial(EXPERIMENTS[config.problem].make, config.seed, config.small)
    trace: dict[str, list[float]] = {name: [] for name in COLUMNS}
    while following is not None:  # one slab of time after the other; mostly there is one
        setting = on_device(following(), device, getattr(torch, config.dtype))
        load_libraries(setting)
        message, parameters = train_one(config, setting, device, show, trace)
        following = setting.following
    run = {
        "config": asdict(config),
        **provenance("torch", hardware=hardware_of(device), commit=commit),
        "parameters": parameters,
        "message": message,
        "trace": trace,
    }
    if config.seed == PICTURED_SEED and len(setting.domain) <= MOST_AXES:
        run["picture"] = error_picture(setting)
    return run


def train_one(
    config: Config,
    setting: Setting,
    device: torch.device,
    show: Callable[[float], Any],
    trace: dict[str, list[float]],
) -> tuple[str, int]:
    """Train one net, add its columns to those of the slabs before; why it ended, and its size."""
    limits = setting.share * config.seconds, setting.share * (config.passes or math.inf)
    recorder = PointRecorder(*limits, show, clock_of(device))
    training = Training(setting, setting.problem(), recorder, config.seed, config.options)
    message = METHODS[config.method](training)
    found = recorder.trace(training.assess)
    for name, column in trace.items():
        before = column[-1] if column and name in SUMMED else 0
        column += [round(before + value, 3) if before else value for value in found[name]]
    return message, len(training.x0)


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
    errors = _outputs(setting.prediction or setting.net, points) - setting.exact(points)
    return [float(f"{error:.3g}") for error in errors.flatten().tolist()]


def _outputs(net: nn.Module, points: torch.Tensor) -> torch.Tensor:
    return net(points.to(next(net.parameters()))).double().cpu()
