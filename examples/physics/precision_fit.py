"""How exactly a net fits: Michaud and Tegmark's teacher and student (arXiv 2210.13447).

A net 1-20-20-1 learns 100,000 values of a random net 1-3-3-1, so that it could be exact.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from examples.physics.experiment import Setting, solution_error, uniform
from examples.physics.tanh_net import TanhNet

DOMAIN = ((-1.0, 1.0),)
SAMPLES, SMALL_SAMPLES, TEST_POINTS = 100_000, 500, 10_000
TEST_SEED, TEACHER_SEED = 1_000_000, 2_000_000
HIDDEN, SMALL_HIDDEN = (20, 20), (6, 6)


def precision_fit(seed: int, small: bool) -> Setting:
    """The experiment: every seed has a teacher of its own."""
    teacher = TanhNet(1, 3, 3, 1, seed=TEACHER_SEED + seed).double()

    @torch.no_grad()
    def exact(x: Tensor) -> Tensor:
        return teacher(x.cpu()).to(x)

    x = uniform(DOMAIN, SMALL_SAMPLES if small else SAMPLES, seed)
    test = uniform(DOMAIN, TEST_POINTS, TEST_SEED)
    return Setting(
        net=TanhNet(1, *(SMALL_HIDDEN if small else HIDDEN), 1, seed=seed).double(),
        residuals=[(_misfit, (x, exact(x)), 1.0)],
        exact=exact,
        domain=DOMAIN,
        error=solution_error(exact, test, relative=False),
    )


def _misfit(net: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    x, y = batch
    return net(x) - y
