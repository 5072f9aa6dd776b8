"""One run's net, data and objective, on a device."""

from __future__ import annotations

import gc
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from examples.data.splits import Part, Splits, Utterances
from examples.harness.net_training.tasks import Task
from examples.harness.provenance import processor

AT_ONCE = 20_000  # samples, when errors are computed
FEW = 100  # samples of the evaluation that loads the device's libraries


@dataclass(frozen=True)
class Samples:
    """A part of the data as tensors."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True)
class DeviceData:
    """A data set on the device; it outlasts the runs of one call."""

    train: Samples
    test: Samples
    held_out: Samples
    utterances: Utterances | None

    @classmethod
    def of(cls, splits: Splits, device: torch.device) -> DeviceData:
        """Copy the parts there."""
        parts = (splits.train, splits.test, splits.held_out)
        return cls(*(_samples(part, device) for part in parts), splits.utterances)


@dataclass(frozen=True)
class Training:
    """What a method is given: the objective is the mean loss on `data.train` + l2 / 2 |x|^2."""

    net: nn.Module
    task: Task
    data: DeviceData
    l2: float
    seed: int

    @property
    def device(self) -> torch.device:
        """Where everything is."""
        return self.data.train.inputs.device

    @property
    def hardware(self) -> str:
        """The GPU, or else the processor."""
        on_gpu = self.device.type == "cuda"
        return torch.cuda.get_device_name(self.device) if on_gpu else processor()

    def parameters(self) -> list[nn.Parameter]:
        """The variables."""
        return list(self.net.parameters())

    def load(self, x: Tensor) -> Tensor:
        """Copy a flat vector into the net; return it as it is there."""
        variables = self.parameters()
        x = x.to(variables[0])
        pieces = x.split([variable.numel() for variable in variables])
        with torch.no_grad():  # the storages stay: captured graphs and cuDNN's LSTM know them
            for variable, piece in zip(variables, pieces, strict=True):
                variable.copy_(piece.view_as(variable))
        return x

    @torch.no_grad()
    def assess(self, x: Tensor) -> dict[str, float]:
        """The objective and the errors at a flat vector; no part of any clock."""
        x = self.load(x)
        loss, train = self.mean(self.data.train)
        errors = {"value": loss + self.penalty(x), "train": train}
        errors["test"] = self.mean(self.data.test)[1]
        if len(self.data.held_out):
            errors["held_out"] = self.mean(self.data.held_out)[1]
        return errors

    def penalty(self, x: Tensor) -> float:
        """What the objective has beside the loss."""
        return self.l2 / 2 * float(x.double().square().sum())

    @torch.no_grad()
    def mean(self, samples: Samples) -> tuple[float, float]:
        """The mean loss and the mean error."""
        loss, error = torch.zeros(2, dtype=torch.float64, device=self.device)
        pieces = zip(samples.inputs.split(AT_ONCE), samples.targets.split(AT_ONCE), strict=True)
        for inputs, targets in pieces:
            outputs = self.net(inputs)
            loss += self.task.batch_loss(outputs, targets).double() * len(inputs)
            error += self.task.errors(outputs, targets)
        return float(loss) / len(samples), float(error) / len(samples)


def _samples(part: Part, device: torch.device) -> Samples:
    inputs = torch.from_numpy(np.ascontiguousarray(part.inputs)).to(device)
    if part.targets is part.inputs:
        return Samples(inputs, inputs)
    return Samples(inputs, torch.from_numpy(np.ascontiguousarray(part.targets)).to(device))


def load_libraries(training: Training) -> None:
    """Before the clock starts: the first evaluation on a device takes seconds.

    So does the first of torch's optimisers, for which it imports its compiler.
    """
    torch.optim.SGD(training.parameters())
    train = training.data.train
    outputs = training.net(train.inputs[:FEW])
    loss = training.task.batch_loss(outputs, train.targets[:FEW])
    torch.autograd.grad(loss, training.parameters())


def release_memory(device: torch.device) -> None:
    """So that a run does not depend on those before it: what is free decides ksdmin's chunks."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
