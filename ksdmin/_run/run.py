"""What stays the same during a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ksdmin._options import MethodOptions
from ksdmin._problem.arrays import Array, Space
from ksdmin._problem.box import Box
from ksdmin._problem.counting import CountingProblem
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import Sets, Sizes, Subsets
from ksdmin._problem.team import Team
from ksdmin._run.evaluator import Budget, Evaluated, Evaluator, Ledger
from ksdmin._run.state import Sampling


@dataclass(frozen=True)
class Run:
    """What every method has; a method may add its own.

    Attributes
    ----------
    space : Space
        Where the vectors live.
    subsets : Subsets
        The samples, or the user's own sets.
    options : MethodOptions
        The user's.
    budget : Budget
        Evaluations and seconds.
    seed : tuple of int
        Of the random sets: with the iteration it decides them.
    maxiter : float
        The largest number of iterations.
    box : Box or None
        The bounds.
    team : Team
        The processes that make it.
    sampled : bool
        Whether there are sets of samples, rather than a plain function.
    """

    space: Space
    subsets: Subsets
    options: MethodOptions
    budget: Budget
    seed: tuple[int, ...]
    maxiter: float
    box: Box | None
    team: Team
    sampled: bool

    def evaluating(self, ledger: Ledger, *, limited: bool = False) -> Evaluator:
        """The evaluations of one step, which go on from `ledger`, as a context.

        Where they are `limited`, none begins when time is up.
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
        """A problem's traits, as far as the method uses them: factors, or else a diagonal."""
        traits = problem.traits
        return replace(traits, has_diagonal=False) if traits.has_factors else traits

    def as_preconditioner(self, traits: Traits, diagonal: Array) -> Array:
        """What is kept of a problem's diagonal: a method may make its preconditioner of it."""
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
        """How large a gradient may be at a solution, where it was `first_norm` at x0."""
        gtol, gtol_rel = self.options.gtol, self.options.gtol_rel
        return max(gtol, gtol_rel * first_norm) if gtol_rel and first_norm == first_norm else gtol

    def confirm_on_whole_set(
        self, evaluator: Evaluator, there: Evaluated, first_norm: float
    ) -> Evaluated:
        """`there`; or where a partial set suggests convergence, the same point on the whole set."""
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
        """The sets of an iteration after that.

        Where an iterable has no more, B and C are the same once more, and the new `A` is
        everything, or else the last one, which is given.
        """
        if sampling.rest is None:
            if self.subsets.everything(sizes) and sampling.sets.all_are(self.subsets.full):
                return sampling
            drawn = self.draw(iteration, sizes).with_objects_of(sampling.sets.A, A)
            return Sampling(drawn, None)
        sets, rest = sampling.rest.take()
        if sets is not None:
            return Sampling(sets, rest)
        full = self.subsets.full
        A = A if full is None else full
        return Sampling(Sets(A, sampling.sets.B, sampling.sets.C), rest, exhausted=True)

    def draw(self, iteration: int, sizes: Sizes | None) -> Sets:
        """Random sets, or those of the user's callable: the seed and the iteration decide."""
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
        """As many samples as the one set has that serves for all three, but others; or None."""
        if sizes is None or not sizes.together or self.subsets.everything(sizes):
            return None
        rng = np.random.default_rng((*self.seed, iteration))
        return self._indices(self.subsets.draw(iteration, rng, sizes).C)

    def _indices(self, idx: Any) -> Any:
        return self.space.indices(idx) if isinstance(idx, np.ndarray) else idx
