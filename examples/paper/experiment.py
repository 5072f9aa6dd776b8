"""One run: from its configuration to what is stored of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch

from examples.paper import results
from examples.paper.harness import Settings
from examples.paper.methods import METHODS
from examples.paper.recorder import Recorder
from examples.paper.rows import ROWS, Row
from examples.paper.small import SMALL
from examples.paper.training import DeviceData, Training

FEW = 100  # samples of the evaluation that loads the device's libraries


@dataclass(frozen=True)
class Config:
    """What makes a run: two runs with the same are the same run.

    `held_out`, `l2`, `precision`, `rate` and `curvature` are what the run has, not what was asked
    for; None where they do not apply, and `held_out` None: the data set's own.
    """

    row: str
    method: str
    seed: int
    seconds: float
    l2: float
    precision: str
    curvature: str | None
    rate: float | None
    passes: float | None = None
    held_out: int | None = None
    code: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    profile: bool = False
    small: bool = False


def perform(
    config: Config, device: torch.device, commit: str | None, show: Callable[[float], Any]
) -> results.Run:
    """Train, assess what was kept on the way, and tell."""
    row = chosen_row(config)
    split = config.seed if row.splits_by_seed else 0
    data = on_device(config.row, config.small, split, config.held_out, device)
    net = row.net(data.train.inputs.shape[1], config.seed).to(device)
    training = Training(net, row.task, data, config.l2, config.seed)
    load_libraries(training)
    recorder = Recorder(config.seconds, config.passes or math.inf, show)
    outcome = METHODS[config.method].train(training, recorder, settings(config, row))
    run = {
        "config": asdict(config),
        **results.environment(device, commit),
        "train_samples": len(data.train),
        "message": outcome.message,
        "trace": results.columns(recorder.trace(training.assess)),
    }
    return run if outcome.shares is None else {**run, "shares": outcome.shares}


def chosen_row(config: Config) -> Row:
    """The row, with another code layer where one is asked for."""
    row = rows(config.small)[config.row]
    if config.code is None:
        return row
    if row.outputs is not None:
        raise ValueError(f"--code is for auto-encoders: {config.row} has no code layer")
    return replace(row, hidden=(*row.hidden[:-1], config.code))


def rows(small: bool) -> dict[str, Row]:
    """The rows by name, at either size."""
    return SMALL if small else ROWS


def settings(config: Config, row: Row) -> Settings:
    """What the method is told."""
    return Settings(
        curvature=config.curvature or "gauss-newton",
        precision=config.precision,
        krylov_dim=row.krylov_dim,
        hf_share=row.hf_share,
        rate=config.rate,
        options=config.options,
        profile=config.profile,
    )


@lru_cache(maxsize=1)
def on_device(
    row: str, small: bool, split: int, held_out: int | None, device: torch.device
) -> DeviceData:
    """The data; the runs of one row share them."""
    splits = rows(small)[row].load(split)
    return DeviceData.of(splits if held_out is None else splits.holding_out(held_out), device)


def load_libraries(training: Training) -> None:
    """One evaluation before the clock starts: the first one on a device takes seconds."""
    train = training.data.train
    outputs = training.net(train.inputs[:FEW])
    loss = training.task.batch_loss(outputs, train.targets[:FEW])
    torch.autograd.grad(loss, training.parameters())
