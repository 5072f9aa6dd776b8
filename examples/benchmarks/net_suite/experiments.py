"""Which net learns what, to which losses, and by which methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from examples.benchmarks.net_suite import nets, samples, small_nets
from examples.data.splits import Splits
from examples.harness.net_training.tasks import CLASSIFICATION, REGRESSION, Task


@dataclass(frozen=True)
class Experiment:
    """A net and its samples.

    Attributes
    ----------
    title : str
        In words.
    net, samples : callable
        Make them.
    levels : tuple of float
        The losses on the training samples to which seconds are counted.
    seconds : float
        What a run takes on a GPU, or two cores of a CPU for small nets, where not given.
    task : Task
        The loss, and the error on the test samples.
    l2 : float
        The penalty is l2 / 2 |x|^2.
    """

    title: str
    net: Callable[[], nn.Module]
    samples: Callable[[], Splits]
    levels: tuple[float, ...] = (0.1, 0.03, 0.01)
    seconds: float = 6.0
    task: Task = CLASSIFICATION
    l2: float = 1e-5


EXPERIMENTS: Mapping[str, Experiment] = {
    "conv": Experiment("a convolutional net, noisy digits", nets.conv, samples.noisy_digits),
    "causal": Experiment(
        "a character transformer, source code", nets.causal, samples.text, (1.5, 1.2, 1.0), 10.0
    ),
    "perceptron": Experiment("a perceptron, digits", nets.perceptron, samples.digits, seconds=4.0),
    "lstm": Experiment("an LSTM, digits", nets.lstm, samples.digits),
    "residual": Experiment(
        "a residual net with group norm, noisy digits", nets.residual, samples.noisy_digits
    ),
    "transformer": Experiment(
        "a transformer over patches, digits", nets.transformer, samples.digits
    ),
    # Set aside: nothing is tuned on it.
    "aside": Experiment(
        "a U-net that takes noise away",
        nets.u_net,
        samples.denoising,
        (0.02, 0.012, 0.01),
        task=REGRESSION,
        l2=1e-6,
    ),
    "small-conv": Experiment(
        "a small convolutional net, few digits",
        small_nets.convolutional,
        samples.few_digits,
        seconds=10.0,
    ),
    "small-residual": Experiment(
        "a small residual net, few digits", small_nets.residual, samples.few_digits, seconds=10.0
    ),
    "small-lstm": Experiment(
        "a small LSTM, few digits", small_nets.lstm, samples.few_digits, seconds=10.0
    ),
    "small-transformer": Experiment(
        "a small transformer, few digits", small_nets.transformer, samples.few_digits, seconds=10.0
    ),
}


@dataclass(frozen=True)
class Variant:
    """A method of examples/harness/net_training as it runs here."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    has_rate: bool = False


MINI_BATCH = {"batch": 128, "decay": "cosine"}
VARIANTS: Mapping[str, Variant] = {
    "ksd": Variant("ksd"),
    "adam": Variant("adam", MINI_BATCH, has_rate=True),
    "torch-lbfgs": Variant("torch-lbfgs", {"history_size": 100}),
    "ksd-diagonal": Variant("ksd-diagonal"),
    "hf-kronecker": Variant("hf-kronecker"),
    "hf-diagonal": Variant("hf"),
    "muon": Variant("muon", MINI_BATCH, has_rate=True),
}
RATES = (1e-3, 3e-3, 3e-4)  # of Adam and of Muon, the likeliest first


def planned(
    names: Sequence[str], methods: Sequence[str], rates: Sequence[float], seeds: Sequence[int]
) -> Iterator[tuple[str, str, float | None, int]]:
    """(net, method, rate, seed) of every run: all nets and methods with the first seed first."""
    for seed in seeds:
        for name in names:
            for method in methods:
                for rate in rates if VARIANTS[method].has_rate else [None]:
                    yield name, method, rate, seed
