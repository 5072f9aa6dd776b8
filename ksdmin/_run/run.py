"""A run of any method: what stays the same, its state, a row of its history."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from ksdmin._options import MethodOptions
from ksdmin._problem.arrays import Array, Space
from ksdmin._problem.box import Box
from ksdmin._problem.counting import CountingProblem
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import Sets, Sizes, Stream, Subsets, one_object
from ksdmin._problem.team import Team
from ksdmin._problem.values import changed, made
from ksdmin._result import Record
from ksdmin._run.evaluator import Budget, Evaluated, Evaluator, Ledger
from ksdmin._run.fit_tests import Held


@dataclass(frozen=True)
class Run:
    """What every method has; a method may add its own."""

    space: Space  # where the vectors live
    subsets: Subsets  # the samples, or the user's own sets
    options: MethodOptions  # the user's
    budget: Budget  # evaluations and seconds
    seed: tuple[int, ...]  # of the random sets: with the iteration it decides them
    maxiter: float  # the largest number of iterations
    box: Box | None  # the bounds
    team: Team  # the processes that make it
    sampled: bool  # whether there are sets of samples, rather than a plain function
    # Whether steps make tests of convergence that do not depend on units, in the place of those of
    # the gradient: of residuals, where no tolerance is given.
    unit_free: bool = field(default=False, kw_only=True)

    def evaluating(self, ledger: Ledger, *, limited: bool = False) -> Evaluator:
        """The evaluations of one step, continuing from `ledger`, as a context.

        If they are `limited`, none begins when time is up.
        """
        return Evaluator(
            ledger,
            self.space,
            self.subsets,
            self.budget,
            self.traits_of,
            self.as_preconditioner,
            limited=limited,
            gives_up=limited and not self.sampled,
        )

    def traits_of(self, problem: CountingProblem) -> Traits:
        """A problem's traits as the method uses them: with factors, or otherwise a diagonal."""
        traits = problem.traits
        return replace(traits, has_diagonal=False) if traits.has_factors else traits

    def as_preconditioner(self, traits: Traits, diagonal: Array) -> Array:
        """What is kept of a problem's diagonal; a method may turn it into its preconditioner."""
        return diagonal

    def stationarity(self, x: Array, g: Array) -> float:
        """The largest magnitude in the gradient; with bounds, in the projected one."""
        return self.space.max_abs(g) if self.box is None else self.box.stationarity(x, g)

    def movable(self, here: Evaluated) -> Callable[[Array], Array]:
        """A function that zeroes the components of a vector at active bounds."""
        box = self.box
        if box is None:
            return lambda u: u
        held = box.held(here.x, here.gradient)
        return lambda u: box.without(u, held)

    def gradient_target(self, first_norm: float) -> float:
        """How large the gradient may be at a solution, if it was `first_norm` at x0."""
        gtol, gtol_rel = self.options.gtol, self.options.gtol_rel
        return max(gtol, gtol_rel * first_norm) if gtol_rel and first_norm == first_norm else gtol

    def confirm_on_whole_set(
        self, evaluator: Evaluator, there: Evaluated, first_norm: float
    ) -> Evaluated:
        """`there`; or the same point on the whole set, if a partial set suggests convergence."""
        if self.subsets.full is None or self.subsets.is_full(there.idx):
            return there
        if self.stationarity(there.x, there.gradient) > self.gradient_target(first_norm):
            return there
        return evaluator.evaluate(there.x, self.subsets.full, diagonal=there.diagonal is not None)

    # The sets of an iteration (Algorithm 3, line 3)

    def first_sets(self, sizes: Sizes | None) -> Sampling:
        """The sets of the first iteration."""
        rest = self.subsets.stream()
        if rest is None:
            return Sampling(self.draw(0, sizes), None, others=self.others(0, sizes))
        sets, rest = rest.take()
        if sets is None:
            raise ValueError("subsets: the iterable holds no sets at all")
        return Sampling(sets, rest)

    def next_sets(
        self, sampling: Sampling, A: Any, iteration: int, sizes: Sizes | None
    ) -> Sampling:
        """The sets of a later iteration.

        If the user's iterable has no more, B and C stay, and the new `A` is the whole set, or the
        last one, which is given.
        """
        if sampling.rest is None:
            if self.subsets.everything(sizes) and sampling.sets.all_are(self.subsets.full):
                return sampling
            drawn = self.draw(iteration, sizes)
            known = drawn if sizes is not None else drawn.with_objects_of(sampling.sets.A, A)
            return Sampling(known, None)
        sets, rest = sampling.rest.take()
        if sets is not None:
            return Sampling(sets.with_objects_of(sampling.sets.A, A), rest)
        full = self.subsets.full
        A = A if full is None else full
        return Sampling(Sets(A, sampling.sets.B, sampling.sets.C), rest, exhausted=True)

    def draw(self, iteration: int, sizes: Sizes | None) -> Sets:
        """Random sets, or those of the user's callable; seed and iteration decide them."""
        full = self.subsets.full
        if self.subsets.everything(sizes):
            return Sets(full, full, full)
        rng = np.random.default_rng((*self.seed, iteration))
        sets = self.subsets.draw(iteration, rng, sizes)
        if sizes is None:  # the user's own objects
            return sets
        if sizes.together:
            one = self._indices(sets.B)
            return Sets(one, one, one)
        return Sets(*(self._indices(idx) for idx in (sets.A, sets.B, sets.C)))

    def others(self, iteration: int, sizes: Sizes | None) -> Any:
        """As many other samples as the one set has that serves as A, B and C; or None."""
        if sizes is None or not sizes.together or self.subsets.everything(sizes):
            return None
        rng = np.random.default_rng((*self.seed, iteration))
        return self._indices(self.subsets.draw(iteration, rng, sizes).C)

    def _indices(self, idx: Any) -> Any:
        return self.space.indices(idx) if isinstance(idx, np.ndarray) else idx


@dataclass(frozen=True)
class Sampling:
    """The sets of the coming iteration."""

    sets: Sets  # A, B and C
    rest: Stream | None  # what is left of the user's iterable of sets, where there is one
    exhausted: bool = False  # whether that had no more for this iteration
    # Where A, B and C are one set, as many other samples: they show whether it is too small.
    others: Any = None


@dataclass(frozen=True)
class State:
    """A value from which a method's `step` makes the next one; nothing else changes in a run."""

    here: Evaluated  # the point, with value, gradient and diagonal on a set A
    gradient_norm: float  # the largest magnitude in the gradient here
    first_norm: float  # the same at x0, on the whole set; NaN where that is not known
    sampling: Sampling  # the sets of the coming iteration
    ledger: Ledger  # what has been spent and found, and the arithmetic in force
    # What the last step did to the value; NaN where it must not count for `ftol` and `xtol`.
    last_decrease: float
    lowest: float  # a value below which the objective counts as unbounded
    broken: bool  # whether the curvature gave no finite product at all
    record: Record  # the last line of the history

    @property
    def sets(self) -> Sets:
        """The sets of the coming iteration."""
        return self.sampling.sets

    @property
    def curvature_is_sampled(self) -> bool:
        """Whether B, the set of the curvature, differs from A, the set of the gradient."""
        return self.sampling.sets.B is not self.here.idx

    def from_file(self, full: Any) -> Self:
        """A state that was saved: each set is one object again, the `full` one that of the run."""
        idx = one_object(self.here.idx, (full,))
        sets = self.sampling.sets.with_objects_of(full, idx)
        here, sampling = changed(self.here, idx=idx), changed(self.sampling, sets=sets)
        return changed(self, here=here, sampling=sampling)

    def with_tolerances(self, given: Mapping[str, float]) -> Self:
        """The state with other tolerances, if it keeps any."""
        return self

    def of_another_function(self) -> Self:
        """The state after a change of samples, or of parameters from outside.

        The point is already evaluated.
        """
        return changed(self, last_decrease=math.nan, broken=False)

    @property
    def tests_itself(self) -> bool:
        """Whether the tests without units count."""
        return self.ledger.problem.unit_free

    @property
    def is_fit(self) -> bool:
        """Whether the steps alone make these tests."""
        return False

    @property
    def held(self) -> Held | None:
        """The test that holds here, if any."""
        return None

    @property
    def stalled(self) -> bool:
        """Whether the last iterations made no progress; each method defines that."""
        raise NotImplementedError


UNBOUNDED_BELOW = -1e20  # times max(1, |f(x0)|): no sensible minimum is below this


def lowest_sensible(value: float) -> float:
    """The value below which an objective that starts with `value` counts as unbounded."""
    return UNBOUNDED_BELOW * max(1.0, abs(value)) if math.isfinite(value) else -math.inf


def write_record(
    evaluator: Evaluator,
    iteration: int,
    here: Evaluated,
    gradient_norm: float,
    sets: Sets,
    *,
    step_norm: float = 0.0,
    dim: int = 0,
    inner_iterations: int = 0,
    accepted: bool = True,
    kind: str = "",
) -> Record:
    """The row of the history for an iteration."""
    counts, size_of = evaluator.counts, evaluator.subsets.size_of
    size_A = size_of(here.idx)
    return made(
        Record,
        iteration=iteration,
        value=here.value,
        gradient_norm=gradient_norm,
        step_norm=step_norm,
        accepted=accepted,
        dim=dim,
        size_A=size_A,
        size_B=size_A if sets.B is here.idx else size_of(sets.B),
        size_C=size_A if sets.C is here.idx else size_of(sets.C),
        inner_iterations=inner_iterations,
        nfev=counts.nfev,
        njev=counts.njev,
        nhev=counts.nhev,
        passes=counts.passes,
        seconds=evaluator.budget.seconds,
        reductions=counts.reductions,
        reduced_bytes=counts.reduced_bytes,
        validation=math.nan,
        kind=kind,
    )
