"""What is minimised, and what is reported of it: auto-encoding and classification."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Task:
    """A loss and an error.

    Attributes
    ----------
    loss : nn.Module
        As ksdmin takes it: per sample the sum over its outputs, over samples the mean.
    batch_loss : callable
        (outputs, targets) -> the mean of the same over a batch.
    errors : callable
        (outputs, targets) -> the sum over samples of what the tables report.
    unit : str
        Of the error.
    """

    name: str
    loss: nn.Module
    batch_loss: Callable[[Tensor, Tensor], Tensor]
    errors: Callable[[Tensor, Tensor], Tensor]
    unit: str


def _squared_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    return (torch.sigmoid(outputs) - targets).square().sum(dtype=torch.float64)


def _percent_wrong(outputs: Tensor, targets: Tensor) -> Tensor:
    return 100 * (outputs.argmax(dim=1) != targets).sum(dtype=torch.float64)


_cross_entropies = nn.BCEWithLogitsLoss(reduction="sum")

AUTO_ENCODING = Task(
    name="auto-encoding",
    loss=_cross_entropies,
    batch_loss=lambda outputs, targets: _cross_entropies(outputs, targets) / len(outputs),
    errors=_squared_errors,
    unit="",
)
CLASSIFICATION = Task(
    name="classification",
    loss=nn.CrossEntropyLoss(),
    batch_loss=nn.CrossEntropyLoss(),
    errors=_percent_wrong,
    unit="%",
)
