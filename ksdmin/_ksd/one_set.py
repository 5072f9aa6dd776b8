"""One sample in the place of all three sets, for Gauss-Newton steps of very many points.

Problem: the equations of a physics-informed net hold everywhere; its points are as many as somebody
cares to draw. A step made of few of them costs little, and is as good as one made of all, as long
as the others come down with these.

Algorithm: A, B and C are one set, and the run minimises the loss on it, as if there were no other
samples. As many other samples show whether it is fitted while they are not: where their loss is
more than twice as large, the set is drawn anew, and twice as large. So is one on which the run has
come to its end. Beyond half of the samples comes everything.
"""

from __future__ import annotations

import math

from ksdmin._ksd.affordable import costs_of, matrix_fits, samples_that_fit
from ksdmin._ksd.cost_model import MATRIX_IN_GRADIENTS
from ksdmin._ksd.rules.set_sizes import doubled
from ksdmin._ksd.state import KSDRun, KSDState
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import Sizes
from ksdmin._run.evaluator import Evaluated, Evaluator

# Times the loss on a set: on other samples, more than that is no chance.
FITTED_ONLY_HERE = 2.0


def first_one_set(run: KSDRun, traits: Traits) -> Sizes | None:
    """The first set, 2 `per_root` roots of the number of samples; None: other rules apply.

    It is for rows that cost a few gradients, as those of differential equations do.
    """
    N, per_root = run.subsets.n, run.preset.per_root
    if N is None or per_root is None or not traits.has_jacobian or not run.applies("set_sizes"):
        return None
    whole = costs_of(run, traits, N, N)
    size = max(2 * per_root * math.isqrt(N), run.subsets.smallest)
    if whole.exact > MATRIX_IN_GRADIENTS * whole.gradient or 2 * size > N:
        return None
    return Sizes.one(size) if matrix_fits(run, traits, size) else None


def sizes_of_one_set(
    run: KSDRun, evaluator: Evaluator, state: KSDState, there: Evaluated, *, converged: bool
) -> Sizes:
    """The sizes after a step to `there`, where A, B and C are one set."""
    sizes, N = state.rules.set_sizes.sizes, run.subsets.n
    assert sizes is not None
    assert N is not None
    if converged:
        return whole_sizes(run, evaluator.traits, N)
    elsewhere = evaluator.value(state.here.x, state.sampling.others)
    if not state.rules.stall.stalled and elsewhere <= FITTED_ONLY_HERE * state.here.value:
        return sizes
    size = doubled(sizes.A, N)
    fits = size < N and matrix_fits(run, evaluator.traits, size)
    return Sizes.one(size) if fits else whole_sizes(run, evaluator.traits, N)


def whole_sizes(run: KSDRun, traits: Traits, N: int) -> Sizes:
    """Everything; the rows are of as many samples as there is room for."""
    return Sizes(N, samples_that_fit(run, traits) or N, N)
