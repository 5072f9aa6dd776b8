"""What is minimised, and what is reported of it: auto-encoding, classes, numbers."""

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
    """Where a sample has several targets, as a text has, their mean."""
    wrong = (outputs.argmax(dim=1) != targets).double()
    return 100 * wrong.reshape(len(wrong), -1).mean(dim=1).sum()


def _percent_off(outputs: Tensor, targets: Tensor) -> Tensor:
    """A number counts as wrong that is off by more than the tolerance."""
    return 100 * ((outputs - targets).abs() > TOLERANCE).double().sum()


def _mean_squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).double().square().flatten(1).mean(dim=1).sum()


TOLERANCE = 0.04  # of the adding problem, by Hochreiter and Schmidhuber (1997)
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
REGRESSION = Task(
    name="regression",
    loss=nn.MSELoss(),
    batch_loss=nn.MSELoss(),
    errors=_mean_squares,
    unit="",
)
ADDING = Task(
    name="adding",
    loss=nn.MSELoss(),
    batch_loss=nn.MSELoss(),
    errors=_percent_off,
    unit="%",
)
