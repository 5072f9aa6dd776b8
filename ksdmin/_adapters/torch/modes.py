"""What a forward pass depends on beside its arguments: modes, generators, statistics of batches.

Evaluations keep the train and eval modes of ``from_torch``'s time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

_TRAINING, _TRACKING = attrgetter("training"), attrgetter("track_running_stats")


class KeptModes:
    """The modes of modules, in which they are evaluated whatever the user sets later.

    A user looks at a model in eval mode between two iterations; the objective must stay the same
    function, and a CUDA graph would not see the new mode. Modules that are added later keep their
    own mode. BatchNorm in train mode leaves its running statistics alone.
    """

    def __init__(self) -> None:
        self._modules: list[nn.Module] = []
        self._training: list[bool] = []
        self._norms: list[Any] = []

    def add(self, *things: Any) -> None:
        """Keep the modes that the modules among `things` have now."""
        modules = [one for one in things if isinstance(one, nn.Module)]
        found = [module for one in modules for module in one.modules()]
        self._modules += found
        self._training += map(_TRAINING, found)
        self._norms += [norm for one in modules for norm in batch_norms(one)]

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """The modules are in the modes that were kept; afterwards in those of before."""
        before, tracking = list(map(_TRAINING, self._modules)), list(map(_TRACKING, self._norms))
        if before == self._training and not any(tracking):
            yield
            return
        self._set(self._training, [False] * len(tracking))
        try:
            yield
        finally:
            self._set(before, tracking)

    @contextmanager
    def in_eval(self, only: Collection[nn.Module] | None = None) -> Iterator[None]:
        """Evaluations are in eval mode for a while: all modules, or some `only`."""
        kept = self._training
        self._training = [
            training and only is not None and module not in only
            for module, training in zip(self._modules, kept, strict=True)
        ]
        try:
            yield
        finally:
            self._training = kept

    def _set(self, training: Sequence[bool], tracking: Sequence[bool]) -> None:
        # nn.Module's own __setattr__ takes 20 times as long
        for module, mode in zip(self._modules, training, strict=True):
            object.__setattr__(module, "training", mode)
        for norm, tracks in zip(self._norms, tracking, strict=True):
            object.__setattr__(norm, "track_running_stats", tracks)


# Torch's global random generators, which a model draws from (dropout): seeded and restored


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


# BatchNorm in train mode, which normalises by the statistics of a batch


# Samples of a batch: as many as batches of a stochastic method have, as a rule. On the digits of
# scikit-learn a residual net has a loss of 0.005 to 0.008 after 40 passes with 128, 256 and all of
# 1347 samples.
BATCH_SAMPLES = 256
# Samples of the smallest sets: with smaller batches BatchNorm soon becomes worse (Wu and He, 2018,
# "Group normalization").
FEWEST_SAMPLES = 32
# Running statistics are taken from so many samples at most: the error of a mean is then 1% of the
# standard deviation.
STATISTICS_SAMPLES = 10_000


def batch_norms(model: nn.Module) -> list[Any]:
    """The modules that normalise by the statistics of the batch."""
    found = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    return [module for module in found if takes_statistics(module)]


def takes_statistics(norm: Any) -> bool:
    """Whether a BatchNorm takes the statistics of the batch, and not its running ones."""
    return norm.training or norm.running_mean is None


def tracking(norms: list[Any]) -> list[Any]:
    """Those that have running statistics."""
    return [norm for norm in norms if norm.running_mean is not None]


@contextmanager
def taking_statistics(norms: list[Any]) -> Iterator[None]:
    """Forward passes average the statistics of their batches; these become the running ones."""
    before = [(norm.momentum, norm.track_running_stats) for norm in norms]
    try:
        for norm in norms:
            norm.momentum, norm.track_running_stats = None, True  # None: the mean of all batches
            norm.reset_running_stats()
        yield
    finally:
        for norm, (momentum, tracks) in zip(norms, before, strict=True):
            norm.momentum, norm.track_running_stats = momentum, tracks
