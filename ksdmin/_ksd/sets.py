"""The sets A, B and C: how large they are at first, and from step to step.

Usually each set is drawn by itself, and the rule of ``rules/set_sizes.py`` enlarges it. For
Gauss-Newton steps with very many points, one sample takes the place of all three sets.

Problem: the equations of a physics-informed net hold everywhere, and the user may draw any number
of points. A step made of few points costs little. It is as good as a step made of all of them, as
long as the residuals at the others fall, too.

Algorithm: A, B and C are one set, and the run minimises the loss on it, as if there were no other
samples. As many other samples show whether it is too small (`OneSet` there). Then a new set of
twice the size is drawn; also if the run has stalled. Beyond half of the samples, and when the run
has converged, the set becomes the whole.
"""

from __future__ import annotations

import math

from ksdmin._ksd.affordable import first_curvature_samples, matrix_fits, samples_that_fit
from ksdmin._ksd.outcome import Outcome, Trial
from ksdmin._ksd.rules.set_sizes import OneSet, doubled
from ksdmin._ksd.state import KSDRun, KSDState, reevaluate
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import Sizes
from ksdmin._problem.values import changed
from ksdmin._run.ending import small_change
from ksdmin._run.evaluator import Evaluated, Evaluator
from ksdmin._run.run import Sampling

# With Kronecker factors B and C have so many times the root of the number of samples; the second
# number is for a GPU, which finishes few samples before the next launch. With 1 there, three of six
# nets take 1.3 times as long on an H200, the others 0.9 to 1.1 times (two seeds). With 2 on a CPU,
# small nets have up to four times the loss after 50 passes.
FACTORED_ROOTS = 1, 2


def first_sizes(run: KSDRun, traits: Traits) -> Sizes | None:
    """The sizes of the first sets.

    If the whole curvature matrix is affordable, only B may be a sample: each further step costs a
    gradient, and all samples teach the model. If fewer samples would cost no less, the sets are the
    whole. So they are without Krylov steps, the only kind that can use a sampled gradient.
    """
    if not run.sampled:
        return Sizes(1, 1, 1)
    N = run.subsets.n
    few = N is not None and N <= traits.least_set and run.preset.compares
    if N is not None and not run.subsets.asked and (few or not run.applies("krylov")):
        return Sizes(N, N, N)
    fewest, per_root = run.preset.fewest, run.preset.per_root
    roots = FACTORED_ROOTS[traits.least_set > 0] if traits.has_factors else None
    sizes = run.subsets.sizes(
        run.parts,
        fewest,
        per_root,
        nonlinear=traits.nonlinear,
        roots=roots,
        least=int(traits.fewest_samples),
    )
    B = first_curvature_samples(run, traits)
    if sizes is None or run.subsets.n is None or B is None:
        return sizes
    return first_one_set(run, traits) or Sizes(run.subsets.n, B, run.subsets.n)


def first_one_set(run: KSDRun, traits: Traits) -> Sizes | None:
    """The first size of a single set, 2 `per_root` roots of the number of samples; None: three."""
    N, per_root = run.subsets.n, run.preset.per_root
    suits = traits.has_jacobian and traits.sum_of_squares and run.applies("set_sizes")
    if N is None or per_root is None or not suits:
        return None
    size = max(2 * per_root * math.isqrt(N), run.subsets.smallest)
    fits = 2 * size <= N and matrix_fits(run, traits, size)
    return Sizes.one(size) if fits else None


def next_sets(run: KSDRun, state: KSDState, trial: Trial) -> Sampling:
    """The sets of the next iteration, with their present sizes.

    If only B is drawn, and the step did not use it, it stays.
    """
    iteration, sizes = state.record.iteration + 1, state.rules.set_sizes.sizes
    only_B = run.subsets.n is not None and run.subsets.is_full(state.sets.C)
    if (only_B and trial.is_of_model) or (sizes is not None and sizes.together):
        return state.sampling
    return run.next_sets(state.sampling, state.here.idx, iteration, sizes)


def resize_sets(
    run: KSDRun,
    evaluator: Evaluator,
    state: KSDState,
    sampling: Sampling,
    outcome: Outcome,
    there: Evaluated,
) -> KSDState:
    """The sets of the next iteration: those of `sampling`, or larger ones."""
    rules, before = state.rules, state.rules.set_sizes.sizes
    after = state if sampling is state.sampling else changed(state, sampling=sampling)
    if before is None or run.subsets.everything(before):
        return after
    converged_on_A = run.preset.compares and run.subsets.is_full(there.idx)
    if before.together:
        after = resize_one_set(run, evaluator, after, outcome, converged=converged_on_A)
    else:
        set_sizes = rules.set_sizes.after(
            outcome,
            stalled=rules.stall.stalled,
            converged_on_A=converged_on_A,
            matrix_renewed=outcome.whole_curvature
            and state.model.base is not None
            and rules.newton.samples is None,
            damped=state.damping > 0,
        )
        after = after.with_rules(set_sizes=set_sizes)
    sizes = after.rules.set_sizes.sizes
    if sizes is None or sizes == before:
        return after
    return enlarge_sets(run, evaluator, after, before, sizes)


def resize_one_set(
    run: KSDRun, evaluator: Evaluator, state: KSDState, outcome: Outcome, *, converged: bool
) -> KSDState:
    """The state after a step, with the sizes of the next sets in its rules.

    If the user's test of convergence holds on the set, it is repeated on all samples.
    """
    rules, N = state.rules, run.subsets.n
    sizes = rules.set_sizes.sizes
    assert sizes is not None
    assert N is not None
    taken = changed(state, record=changed(state.record, step_norm=outcome.step_norm))
    held = state.here.value <= run.options.fmin or small_change(run, taken) is not None
    if converged or held or state.rules.gauss_newton.met is not None:
        return _with_sizes(state, whole_sizes(run, evaluator.traits, N))
    elsewhere = evaluator.value(state.here.x, state.sampling.others)
    known = rules.one_set.after(state.here.value, elsewhere)
    if not rules.stall.stalled and not known.too_small:
        return state.with_rules(one_set=known)
    size = doubled(sizes.A, N)
    if size < N and matrix_fits(run, evaluator.traits, size):
        return _with_sizes(state, Sizes.one(size))
    return _with_sizes(state, whole_sizes(run, evaluator.traits, N))


def _with_sizes(state: KSDState, sizes: Sizes) -> KSDState:
    set_sizes = changed(state.rules.set_sizes, sizes=sizes)
    return state.with_rules(set_sizes=set_sizes, one_set=OneSet())


def whole_sizes(run: KSDRun, traits: Traits, N: int) -> Sizes:
    """The whole set; the rows are those of as many samples as fit into memory."""
    return Sizes(N, samples_that_fit(run, traits) or N, N)


def enlarge_sets(
    run: KSDRun, evaluator: Evaluator, state: KSDState, before: Sizes, sizes: Sizes
) -> KSDState:
    """Larger sets: what failed on the smaller ones may succeed, and A has another gradient."""
    iteration, stall = state.record.iteration + 1, state.rules.stall
    larger = run.draw(iteration, sizes)
    if sizes.A == before.A:
        sampling = changed(state.sampling, sets=changed(larger, A=state.sets.A))
        return changed(state, sampling=sampling).with_rules(stall=changed(stall, count=0))
    sampling = changed(state.sampling, sets=larger, others=run.others(iteration, sizes))
    state = changed(state, sampling=sampling)
    if state.here.idx is larger.A:
        return state.with_rules(stall=stall.restarted(state.gradient_norm))
    return reevaluate(run, evaluator, state, larger.A)
