"""Torch's global random generators, which a model draws from (dropout): seeded and restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def seeded_generators(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's global generators start from `seed`; afterwards their states are restored."""
    with restored_generators(device):
        for generator in generators(device):
            generator.manual_seed(seed)
        yield


@contextmanager
def restored_generators(device: torch.device) -> Iterator[None]:
    """Afterwards the states of the generators are restored: the same will be drawn again."""
    before = generator_states(device)
    try:
        yield
    finally:
        set_generator_states(before, device)


def generator_states(device: torch.device) -> list[Tensor]:
    """The states of the generators."""
    return [generator.get_state() for generator in generators(device)]


def set_generator_states(states: list[Tensor], device: torch.device) -> None:
    """Put the generators into these states."""
    for generator, state in zip(generators(device), states, strict=True):
        generator.set_state(state)


def generators(device: torch.device) -> list[torch.Generator]:
    """Torch's global generators that a model on `device` may draw from."""
    if device.type != "cuda":
        return [torch.default_generator]
    return [torch.default_generator, torch.cuda.default_generators[device.index]]
