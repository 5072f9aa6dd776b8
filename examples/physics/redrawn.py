"""Points drawn anew where the equation is fitted worst, several times in a run.

A net fits an equation where it has points. Between them, where the solution is steep, the residuals
may be 10,000 times as large, and they show in the error. So each round has other points: drawn from
ten times as many, half of them in proportion to their residuals and half regardless of these, as in
Wu et al.'s residual-based adaptive distribution (arXiv 2207.10289).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from examples.physics.experiment import Setting, uniform

CANDIDATES, AT_ONCE = 10, 20_000  # for each point; whose residuals are computed


def redrawn(setting: Setting, rounds: int, seed: int) -> Setting:
    """The setting, whose first block has other points in each of so many equal parts of a run."""
    return _round(replace(setting, share=setting.share / rounds), rounds, seed)


def _round(setting: Setting, left: int, seed: int) -> Setting:
    """The setting with its points, for the next of the rounds that are left."""
    following = partial(_next, setting, left - 1, seed + 1) if left > 1 else setting.following
    return replace(setting, following=following)


def _next(setting: Setting, left: int, seed: int) -> Setting:
    (equation, points, weight), *others = setting.residuals
    block = equation, harder(setting, len(points), seed), weight
    return _round(replace(setting, residuals=[block, *others]), left, seed)


def harder(setting: Setting, count: int, seed: int) -> Tensor:
    """Points of the first block, more of them where its residuals are large now."""
    equation, _, _ = setting.residuals[0]
    candidates = uniform(setting.domain, CANDIDATES * count, seed + 1_000)
    like = next(setting.net.parameters())
    with torch.no_grad():
        pieces = [equation(setting.net, piece.to(like)) for piece in candidates.split(AT_ONCE)]
    sizes = torch.cat(pieces).abs().double().sum(dim=1).cpu()
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.multinomial(sizes / sizes.mean() + 1, count, generator=generator)
    return candidates[chosen]
