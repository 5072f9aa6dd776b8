"""Methods of SciPy and torch that use all samples at each evaluation.

Where rounding ends them early, they are restarted at the point they have reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

import ksdmin
from examples.harness.net_training.instrumented_problems import Counted, problem_of
from examples.harness.net_training.method_interface import Outcome, Settings
from examples.harness.net_training.point_recorder import PointRecorder
from examples.harness.net_training.training import Training

WINDOW = 10  # of the L-BFGS methods, as in the paper
NO_LIMIT = 10**9
SEARCH = 26  # evaluations in a line search of torch's, which counts the first one


def train_by_scipy(method: str, fixed: Mapping[str, Any]) -> Callable[..., Outcome]:
    """A method of SciPy's on the same problem, called by ``ksdmin.minimize``."""

    def train(training: Training, recorder: PointRecorder, settings: Settings) -> Outcome:
        problem = Counted(problem_of(training, settings), recorder.work)

        def callback(intermediate_result: Any) -> None:
            recorder.work.iterations += 1
            recorder.see(intermediate_result.x)
            if recorder.spent():
                raise StopIteration

        recorder.start(problem.x0)
        x, message, moved = problem.x0, "", True
        while moved and not recorder.spent():
            options = {"maxiter": NO_LIMIT, "gtol": 0.0, **fixed, **settings.options}
            res = ksdmin.minimize(problem, x, method=method, callback=callback, options=options)
            x, message, moved = res.x, str(res.message), res.nit > 0
        recorder.see(x, last=True)
        return Outcome(recorder.spent() or message)

    return train


def train_by_torch_lbfgs(
    training: Training, recorder: PointRecorder, settings: Settings
) -> Outcome:
    """torch.optim.LBFGS with a strong Wolfe search."""
    problem = Counted(problem_of(training, settings), recorder.work)
    options = {"history_size": WINDOW, "line_search_fn": "strong_wolfe", **settings.options}
    x = torch.nn.Parameter(problem.x0.clone())
    closure = remembering(x, problem)

    def descend() -> bool:
        """Until no step is found or time is spent; whether there was a step at all."""
        limits = {"max_iter": 1, "max_eval": SEARCH, "tolerance_grad": 0.0, "tolerance_change": 0.0}
        optimizer, steps = torch.optim.LBFGS([x], **limits, **options), 0
        while not recorder.spent():
            before = x.detach().clone()
            optimizer.step(closure)
            if torch.equal(before, x.detach()):
                break
            steps += 1
            recorder.work.iterations += 1
            recorder.see(x)
        return steps > 0

    recorder.start(x)
    while not recorder.spent() and descend():
        pass
    recorder.see(x, last=True)
    return Outcome(recorder.spent() or "No step lowers the value any more.")


def remembering(x: torch.nn.Parameter, problem: Counted) -> Callable[[], float]:
    """The value, with x.grad set; a step asks first for what the last one ended with."""
    at, value, gradient = None, 0.0, None

    def closure() -> float:
        nonlocal at, value, gradient
        if at is None or not torch.equal(at, x.detach()):
            at = x.detach().clone()
            value, gradient = problem.value_and_gradient(at, slice(None))
        x.grad = gradient
        return value

    return closure
