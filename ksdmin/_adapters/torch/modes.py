"""Train and eval mode: evaluations keep the modes of ``from_torch``'s time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

from torch import nn

from ksdmin._adapters.torch.batch_norm import batch_norms

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
