"""One sample in the place of all three sets, for Gauss-Newton steps of very many points.

Problem: the equations of a physics-informed net hold everywhere; its points are as many as somebody
cares to draw. A step made of few of them costs little, and is as good as one made of all, as long
as the others come down with these.

Algorithm: A, B and C are one set, and the run minimises the loss on it, as if there were no other
samples. As many other samples show whether it is too small (``rules/one_set.py``): then it is drawn
anew, and twice as large. So is one on which the run has stalled. Beyond half of the samples, and
where the run has converged, comes everything.
"""

from __future__ import annotations

import math

from ksdmin._ksd.affordable import matrix_fits, samples_that_fit
from ksdmin._ksd.outcome import Outcome
from ksdmin._ksd.rules.one_set import OneSet
from ksdmin._ksd.rules.set_sizes import doubled
from ksdmin._ksd.state import KSDRun, KSDState
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import Sizes
from ksdmin._problem.values import changed
from ksdmin._run.ending import small_change
from ksdmin._run.evaluator import Evaluator


def first_one_set(run: KSDRun, traits: Traits) -> Sizes | None:
    """The first set, 2 `per_root` roots of the number of samples; None: other rules apply."""
    N, per_root = run.subsets.n, run.preset.per_root
    suits = traits.has_jacobian and traits.sum_of_squares and run.applies("set_sizes")
    if N is None or per_root is None or not suits:
        return None
    size = max(2 * per_root * math.isqrt(N), run.subsets.smallest)
    fits = 2 * size <= N and matrix_fits(run, traits, size)
    return Sizes.one(size) if fits else None


def resize_one_set(
    run: KSDRun, evaluator: Evaluator, state: KSDState, outcome: Outcome, *, converged: bool
) -> KSDState:
    """The state after a step, with the sizes of the next sets in its rules.

    A test of the user's that holds on the set is one to be made on all samples.
    """
    rules, N = state.rules, run.subsets.n
    sizes = rules.set_sizes.sizes
    assert sizes is not None
    assert N is not None
    taken = changed(state, record=changed(state.record, step_norm=outcome.step_norm))
    held = state.here.value <= run.options.fmin or small_change(run, taken) is not None
    if converged or held or state.rules.damped_step.met is not None:
        return _with_sizes(state, whole_sizes(run, evaluator.traits, N))
    elsewhere = evaluator.value(state.here.x, state.sampling.others)
    known = rules.one_set.after(state.here.value, elsewhere)
    if not rules.stall.stalled and not known.too_small:
        return changed(state, rules=changed(rules, one_set=known))
    size = doubled(sizes.A, N)
    if size < N and matrix_fits(run, evaluator.traits, size):
        return _with_sizes(state, Sizes.one(size))
    return _with_sizes(state, whole_sizes(run, evaluator.traits, N))


def _with_sizes(state: KSDState, sizes: Sizes) -> KSDState:
    set_sizes = changed(state.rules.set_sizes, sizes=sizes)
    return changed(state, rules=changed(state.rules, set_sizes=set_sizes, one_set=OneSet()))


def whole_sizes(run: KSDRun, traits: Traits, N: int) -> Sizes:
    """Everything; the rows are of as many samples as there is room for."""
    return Sizes(N, samples_that_fit(run, traits) or N, N)
