"""One run: from its configuration to what is stored of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from examples.harness.net_training.method_interface import Settings
from examples.harness.net_training.point_recorder import PointRecorder
from examples.harness.net_training.training import DeviceData, Training, load_libraries
from examples.harness.net_training.training_methods import METHODS
from examples.harness.provenance import provenance
from examples.harness.store import Run
from examples.paper import rbm_pretraining
from examples.paper.digit_errors import digit_errors
from examples.paper.run_config import Config, row_of, rows
from examples.paper.seed_series import stopping_point


def perform(
    config: Config, device: torch.device, commit: str | None, show: Callable[[float], Any]
) -> Run:
    """Train, and compute the errors of the points that were kept."""
    row, data = row_of(config), data_of(config, device)
    net = starting_net(config, device)
    training = Training(net, row.task, data, config.l2, config.seed)
    load_libraries(training)
    recorder = PointRecorder(config.seconds, config.passes or math.inf, show)
    outcome = METHODS[config.method].train(training, recorder, settings_of(config))
    trace = recorder.trace(training.assess)
    run = {
        "config": asdict(config),
        **provenance("torch", hardware=training.hardware, commit=commit),
        "title": row.title,
        "train_samples": len(data.train),
        "message": outcome.message,
        "trace": trace,
    }
    if outcome.shares is not None:
        run["shares"] = outcome.shares
    if data.utterances is not None:
        training.load(recorder.kept[stopping_point(trace)].x)
        run["digit_errors"] = digit_errors(net, data.test.inputs, data.utterances)
    return run


def settings_of(config: Config) -> Settings:
    """The settings of the method."""
    row = row_of(config)
    return Settings(
        curvature=config.curvature or "gauss-newton",
        precision=config.precision,
        krylov_dim=row.krylov_dim,
        hf_share=row.hf_share,
        hf_damping=row.hf_damping,
        rate=config.rate,
        options=config.options,
        profile=config.profile,
    )


def data_of(config: Config, device: torch.device) -> DeviceData:
    """The data, which the runs of a row share."""
    split = config.seed if row_of(config).splits_by_seed else 0
    return _data(config.row, config.small, split, config.held_out, device)


@lru_cache(maxsize=1)
def _data(
    row: str, small: bool, split: int, held_out: int | None, device: torch.device
) -> DeviceData:
    splits = rows(small)[row].load(split)
    return DeviceData.of(splits if held_out is None else splits.holding_out(held_out), device)


def starting_net(config: Config, device: torch.device) -> nn.Module:
    """The net where its training starts; pre-training is part of no clock."""
    row, data = row_of(config), data_of(config, device)
    net = row.net(data.train.inputs.shape[-1], config.seed).to(device)
    if row.pretraining_epochs:
        start = _pretrained(config.row, config.small, config.held_out, config.seed, device)
        net.load_state_dict(start)
    return net


@lru_cache(maxsize=8)
def _pretrained(
    row: str, small: bool, held_out: int | None, seed: int, device: torch.device
) -> dict[str, Any]:
    """The parameters after pre-training; the methods of a seed share them."""
    chosen, data = rows(small)[row], _data(row, small, 0, held_out, device)
    net = chosen.net(data.train.inputs.shape[1], seed).to(device)
    code = len(chosen.hidden) if chosen.outputs is None else None
    rbm_pretraining.pretrain(net, data.train.inputs, seed, chosen.pretraining_epochs, code)
    return net.state_dict()
