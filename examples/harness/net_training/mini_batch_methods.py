"""Adam, Muon and Nesterov's momentum over mini-batches, with as little per step as torch allows.

On CUDA a step (gather the batch, forward, backward, update) is one captured graph, so that it
costs one launch; Adam is torch's own, fused. Samples are shuffled anew each epoch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from examples.harness.net_training.adam_and_nesterov import RAISED_EVERY, Adam, Nesterov, Update
from examples.harness.net_training.method_interface import Outcome, Settings
from examples.harness.net_training.muon import Muon
from examples.harness.net_training.point_recorder import PointRecorder
from examples.harness.net_training.training import Training

BATCH = 200
MOMENTUM = 0.99  # the largest, where the options do not say
STEPS_AT_ONCE = 50  # between looks at the clock, for which the device is waited for
WARM_UP = 3  # steps before a graph is captured; they are undone
assert RAISED_EVERY % STEPS_AT_ONCE == 0


def train_by_adam(training: Training, recorder: PointRecorder, settings: Settings) -> Outcome:
    """Adam; options: batch, decay ("cosine")."""
    options = {"batch": BATCH, "decay": None, **settings.options}
    batches = Batches(training, options.pop("batch"))
    update = Adam(training.parameters(), settings.rate, **options)
    return _train(training, recorder, settings, update, batches)


def train_by_muon(training: Training, recorder: PointRecorder, settings: Settings) -> Outcome:
    """Muon; options: batch, decay ("cosine")."""
    options = {"batch": BATCH, "decay": None, **settings.options}
    batches = Batches(training, options.pop("batch"))
    update = Muon(training.parameters(), settings.rate, **options)
    return _train(training, recorder, settings, update, batches)


def train_by_nesterov(training: Training, recorder: PointRecorder, settings: Settings) -> Outcome:
    """Nesterov's momentum; options: batch, momentum (the largest)."""
    options = {"batch": BATCH, "momentum": MOMENTUM, **settings.options}
    batches = Batches(training, options.pop("batch"))
    update = Nesterov(training.parameters(), settings.rate, **options)
    return _train(training, recorder, settings, update, batches)


class Batches:
    """Mini-batches that are drawn on the device, so that drawing them can be captured."""

    def __init__(self, training: Training, size: int) -> None:
        self._samples, self._size = training.data.train, min(size, len(training.data.train))
        self._generator = torch.Generator(training.device).manual_seed(training.seed)
        self._order = torch.arange(len(self._samples), device=training.device)
        self._offsets = torch.arange(self._size, device=training.device)
        self._start = torch.zeros((), dtype=torch.int64, device=training.device)
        self.an_epoch = len(self._samples) // self._size
        self.share = self._size / len(self._samples)

    def draw(self) -> tuple[Tensor, Tensor]:
        """The next batch of this epoch."""
        rows = self._order[self._start + self._offsets]
        self._start += self._size
        return self._samples.inputs[rows], self._samples.targets[rows]

    def shuffle(self) -> None:
        """A new epoch."""
        device, generator = self._order.device, self._generator
        self._order.copy_(torch.randperm(len(self._order), generator=generator, device=device))
        self._start.zero_()


def _train(
    training: Training,
    recorder: PointRecorder,
    settings: Settings,
    update: Update,
    batches: Batches,
) -> Outcome:
    work = recorder.work
    recorder.start(_flat(update))
    with _matmul_precision(settings.precision):
        step = _stepper(training, update, batches)
        while not recorder.spent():
            update.plan(work.iterations, recorder.elapsed / recorder.seconds)
            for i in range(work.iterations, work.iterations + STEPS_AT_ONCE):
                if i % batches.an_epoch == 0:
                    batches.shuffle()
                step()
            if training.device.type == "cuda":
                torch.cuda.synchronize()
            work.iterations = work.values = work.gradients = i + 1
            work.passes = round(2 * batches.share * work.iterations, 3)
            recorder.see(_flat(update))
    recorder.see(_flat(update), last=True)
    return Outcome(recorder.spent())


def _stepper(training: Training, update: Update, batches: Batches) -> Callable[[], None]:
    """One step: on CUDA a graph of it."""
    variables = training.parameters()

    def step() -> None:
        inputs, targets = batches.draw()
        loss = training.task.batch_loss(training.net(inputs), targets)
        gradient = list(torch.autograd.grad(loss, variables))
        if training.l2:
            torch._foreach_add_(gradient, [v.detach() for v in variables], alpha=training.l2)
        update(gradient)

    return _captured(step, update, variables, batches) if training.device.type == "cuda" else step


def _captured(
    step: Callable[[], None], update: Update, variables: list[torch.nn.Parameter], batches: Batches
) -> Callable[[], None]:
    start = [variable.detach().clone() for variable in variables]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*capturable=True")  # it will be captured
        for _ in range(WARM_UP):
            batches.shuffle()  # an epoch may have fewer batches than this
            step()
    torch.cuda.current_stream().wait_stream(side)
    with torch.no_grad():
        torch._foreach_copy_(variables, start)
        for tensor in update.state:
            tensor.zero_()
    batches.shuffle()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def _flat(update: Update) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in update.parameters()])


@contextmanager
def _matmul_precision(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
