"""What a model draws itself (dropout), frozen: the same for every verb at the same set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def frozen_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's global generators start from `seed`; afterwards they are as they were."""
    with forked(device):
        for generator in generators(device):
            generator.manual_seed(seed)
        yield


@contextmanager
def forked(device: torch.device) -> Iterator[None]:
    """What is drawn within will be drawn again afterwards."""
    before = states(device)
    try:
        yield
    finally:
        restore(before, device)


def states(device: torch.device) -> list[Tensor]:
    """Where the generators stand."""
    return [generator.get_state() for generator in generators(device)]


def restore(before: list[Tensor], device: torch.device) -> None:
    """Put the generators back to where they stood."""
    for generator, state in zip(generators(device), before, strict=True):
        generator.set_state(state)


def generators(device: torch.device) -> list[torch.Generator]:
    """Torch's global generators that a model on `device` may draw from."""
    if device.type != "cuda":
        return [torch.default_generator]
    return [torch.default_generator, torch.cuda.default_generators[device.index]]
