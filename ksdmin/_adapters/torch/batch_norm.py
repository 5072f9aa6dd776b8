"""BatchNorm in train mode, which normalises by the statistics of a batch.

The batches of a set of samples are always the same, so that their statistics are part of the
objective, and are differentiated with the rest of it. The running statistics, for the user's own
calls in eval mode, are taken when a point is written into the module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

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
