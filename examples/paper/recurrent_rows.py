"""The recurrent nets of the paper's outlook: two problems of long lags, at two lengths.

The paper says that KSD trains them without structural damping. The problems are those of
``examples/data/long_lags.py``; below 1% wrong they count as solved. A sum is wrong where it is off
by more than 0.04 (Hochreiter and Schmidhuber 1997), an order where another class is likelier.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from examples.data import long_lags
from examples.harness.net_training.tasks import ADDING, CLASSIFICATION, Task
from examples.paper.published_rows import Row

SOLVED = 1.0  # percent
LENGTHS = 50, 100
UNITS = 100
CONNECTIONS, RADIUS = 15, 1.1
INPUT_SPREAD, OUTPUT_SPREAD = 0.1, 0.1
# The net has 10,600 weights: so many sums it can learn by heart, and then it errs on all others.
MANY_SUMS = {**long_lags.COUNTS, "train": 40_000}


class LastState(nn.Module):
    """A plain recurrent net of tanh units; a linear layer reads its last state."""

    def __init__(self, inputs: int, units: int, outputs: int) -> None:
        super().__init__()
        self.recurrent = nn.RNN(inputs, units, batch_first=True)
        self.readout = nn.Linear(units, outputs)

    def forward(self, x: Tensor) -> Tensor:
        # Not the last of all outputs: to differentiate these twice, torch writes an array of their
        # size for each of them, and a product takes seven times as long.
        return self.readout(self.recurrent(x)[1][0])


@torch.no_grad()
def initialise(net: LastState, seed: int) -> None:
    """As in Sutskever et al. (2013): 15 connections to a unit, of spectral radius 1.1.

    So what a unit says neither fades nor explodes within a hundred steps.
    """
    generator = torch.Generator().manual_seed(seed)
    into, again, *biases = net.recurrent.parameters()
    units = len(again)
    chosen = torch.rand(units, units, generator=generator).argsort(dim=1)[:, :CONNECTIONS]
    again.zero_().scatter_(1, chosen, torch.randn(chosen.shape, generator=generator))
    again.mul_(RADIUS / torch.linalg.eigvals(again).abs().max())
    into.normal_(0, INPUT_SPREAD, generator=generator)
    net.readout.weight.normal_(0, OUTPUT_SPREAD, generator=generator)
    for bias in (*biases, net.readout.bias):
        bias.zero_()


@dataclass(frozen=True)
class RecurrentRow(Row):
    """A problem of long lags; `hidden` has the units of the one recurrent layer."""

    @property
    def task(self) -> Task:
        """To add, or to tell an order."""
        return ADDING if self.outputs == 1 else CLASSIFICATION

    def net(self, inputs: int, seed: int) -> nn.Module:
        """The net where it starts."""
        assert self.outputs is not None
        net = LastState(inputs, self.hidden[0], self.outputs)
        initialise(net, seed)
        return net


def _row(
    title: str, problem: long_lags.Problem, length: int, outputs: int, counts: dict[str, int]
) -> RecurrentRow:
    return RecurrentRow(
        title=f"{title}, length {length}",
        load=lambda seed: long_lags.load(problem, length, counts),
        hidden=(UNITS,),
        outputs=outputs,
        l2=0.0,
        krylov_dim=20,
        hf_share=1 / 8,
        published=None,
    )


RECURRENT = {
    f"{name}-{length}": _row(title, problem, length, outputs, counts)
    for name, title, problem, outputs, counts in (
        ("adding", "Adding problem", long_lags.adding, 1, MANY_SUMS),
        ("order", "Temporal order", long_lags.temporal_order, 4, long_lags.COUNTS),
    )
    for length in LENGTHS
}


def shrunk(name: str) -> RecurrentRow:
    """A row of short sequences, that takes a second."""
    row = RECURRENT[name]
    problem = long_lags.adding if row.outputs == 1 else long_lags.temporal_order
    counts = dict.fromkeys(long_lags.COUNTS, 200)
    return replace(
        row,
        title=f"{row.title}, small",
        load=lambda seed: long_lags.load(problem, 20, counts),
        hidden=(20,),
    )
