"""torch's L-BFGS, by itself and after Adam, as physics-informed nets are mostly trained.

Neither knows bounds. L-BFGS is not restarted when it finds no step: its value stays, and the trace
says when that was.
"""

from __future__ import annotations

from typing import Any

import torch

from examples.harness.net_training.full_batch_methods import remembering
from examples.harness.net_training.instrumented_problems import Counted
from examples.physics.training import Training

HISTORY = 100
SEARCH = 26  # evaluations in a line search of torch's, which counts the first one
ADAM_SHARE, ADAM_RATE = 0.25, 1e-3  # of the limits; Rathore et al. have 2% to 75%


def train_by_lbfgs(training: Training) -> str:
    """torch.optim.LBFGS, history 100, strong Wolfe conditions."""
    x = torch.nn.Parameter(training.x0.clone())
    training.recorder.start(x)
    return _lbfgs(x, training, **training.options)


def train_by_adam_then_lbfgs(training: Training) -> str:
    """Adam for a quarter of the seconds, then the same."""
    recorder, options = training.recorder, dict(training.options)
    rate, share = options.pop("rate", ADAM_RATE), options.pop("share", ADAM_SHARE)
    x = torch.nn.Parameter(training.x0.clone())
    adam = torch.optim.Adam([x], lr=rate, foreach=True)
    problem = Counted(training.problem, recorder.work)
    recorder.start(x)
    while recorder.elapsed < share * recorder.seconds and (
        recorder.work.passes < share * recorder.passes
    ):
        _, x.grad = problem.value_and_gradient(x.detach(), slice(None))
        adam.step()
        recorder.work.iterations += 1
        recorder.see(x)
    return _lbfgs(x, training, **options)


def _lbfgs(x: torch.nn.Parameter, training: Training, **options: Any) -> str:
    """Until time is spent, or no step is found."""
    recorder = training.recorder
    closure = remembering(x, Counted(training.problem, recorder.work))
    # One iteration a call, so that each can be looked at; the optimizer remembers the others
    one = {"max_iter": 1, "max_eval": SEARCH, "tolerance_grad": 0.0, "tolerance_change": 0.0}
    fixed = {"history_size": HISTORY, "line_search_fn": "strong_wolfe"}
    optimizer = torch.optim.LBFGS([x], **one, **{**fixed, **options})
    moved = True
    while moved and not recorder.spent():
        before = x.detach().clone()
        optimizer.step(closure)
        moved = not torch.equal(before, x.detach())
        recorder.work.iterations += moved
        recorder.see(x)
    recorder.see(x, last=True)
    return recorder.spent() or "No step lowers the value any more."
