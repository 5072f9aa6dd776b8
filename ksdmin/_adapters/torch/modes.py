"""Train and eval mode: evaluations keep the modes of ``from_torch``'s time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

from torch import nn

_TRAINING = attrgetter("training")


class KeptModes:
    """The modes of modules, in which they are evaluated whatever the user sets later.

    A user looks at a model in eval mode between two iterations; the objective must stay the same
    function, and a CUDA graph would not see the new mode. Modules that are added later keep their
    own mode.
    """

    def __init__(self) -> None:
        self._modules: list[nn.Module] = []
        self._training: list[bool] = []

    def add(self, *things: Any) -> None:
        """Keep the modes that the modules among `things` have now."""
        found = [module for one in things if isinstance(one, nn.Module) for module in one.modules()]
        self._modules += found
        self._training += map(_TRAINING, found)

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """The modules are in the modes that were kept; afterwards in those of before."""
        before = list(map(_TRAINING, self._modules))
        if before == self._training:
            yield
            return
        self._set(self._training)
        try:
            yield
        finally:
            self._set(before)

    @contextmanager
    def all_eval(self) -> Iterator[None]:
        """Evaluations are in eval mode for a while."""
        kept, self._training = self._training, [False] * len(self._training)
        try:
            yield
        finally:
            self._training = kept

    def _set(self, training: Sequence[bool]) -> None:
        for module, mode in zip(self._modules, training, strict=True):
            object.__setattr__(module, "training", mode)  # nn.Module's own takes 20 times as long
