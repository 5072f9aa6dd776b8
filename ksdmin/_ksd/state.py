"""The state of a run, and what stays the same while it changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ksdmin._ksd.dimensions import Dimensions
from ksdmin._ksd.krylov import Basis
from ksdmin._ksd.pace import Pace
from ksdmin._ksd.quasi_newton import QuasiNewton
from ksdmin._options import Options
from ksdmin._problem.arrays import Array, Space
from ksdmin._problem.box import Box
from ksdmin._problem.subsets import Draw, Sets, Sizes
from ksdmin._result import Record
from ksdmin._run.evaluator import Evaluated, Evaluator


@dataclass(frozen=True)
class State:
    """Where a run stands: a value, from which `step` makes the next one.

    Attributes
    ----------
    here : Evaluated
        The point, with value, gradient and diagonal on a set A.
    sets, sizes : Sets, Sizes or None
        The sets of the coming iteration, and the sizes they were drawn with.
    d_prev : tuple of arrays
        The previous search directions, newest first.
    gradient_norm, least_gradient : float
        The largest magnitude in the gradient here, and its smallest value so far.
    forcing : float
        The relative residual that the next Newton step should have.
    damping : float
        The weight of |d|^2 / 2 in what the next search minimises.
    opening : bool
        Whether the quadratic model has told the decrease of every step so far.
    width : int
        K of the next iteration, if its curvature is of a sample.
    model : QuasiNewton
        What has been learnt of the curvature.
    trusted : bool
        Whether the next step may rest on it alone.
    pace : Pace
        What steps gain for their work.
    decrease : float
        What the last step did to the value; NaN where that cannot be told, or tells nothing.
    stalled : int
        Iterations in a row without progress.
    lowest : float
        A value below which the objective counts as unbounded.
    broken, last : bool
        Whether the curvature gave no finite product at all, and whether the sets have run out.
    warned : bool
        Whether the user has been told of a product that is not symmetric.
    record : Record
        The last line of the history.
    """

    here: Evaluated
    sets: Sets
    sizes: Sizes | None
    d_prev: tuple[Array, ...]
    gradient_norm: float
    least_gradient: float
    forcing: float
    damping: float
    opening: bool
    width: int
    model: QuasiNewton
    trusted: bool
    pace: Pace
    decrease: float
    stalled: int
    lowest: float
    broken: bool
    last: bool
    warned: bool
    record: Record

    @property
    def partial(self) -> bool:
        """Whether the curvature is of a sample, and not of what the gradient is of."""
        return self.sets.B is not self.here.idx


S = TypeVar("S", bound=State)


@dataclass(frozen=True)
class Run:
    """What stays the same during a run."""

    evaluator: Evaluator
    options: Options
    draw: Draw
    seed: tuple[int, ...]
    maxiter: float
    parts: int
    dims: Dimensions
    inner_maxiter: int
    box: Box | None

    def stationarity(self, x: Array, g: Array) -> float:
        """The largest magnitude in the gradient; with bounds, in the projected one."""
        return self.space.max_abs(g) if self.box is None else self.box.stationarity(x, g)

    def movable(self, here: Evaluated) -> Callable[[Array], Array]:
        """Holds out of a vector the variables that the gradient presses against their bounds."""
        box = self.box
        if box is None:
            return lambda u: u
        held = box.held(here.x, here.gradient)
        return lambda u: box.without(u, held)

    @property
    def space(self) -> Space:
        """Where the vectors live."""
        return self.evaluator.space

    def sample(self, iteration: int, sizes: Sizes | None) -> Sets | None:
        """The sets of an iteration (Alg. 3, line 3), None where the user's have run out.

        For random ones the seed and the iteration decide.
        """
        subsets = self.evaluator.subsets
        if subsets.everything(sizes):
            return Sets(subsets.full, subsets.full, subsets.full)
        rng = np.random.default_rng((*self.seed, iteration))
        sets = self.draw(iteration, rng, sizes)
        if sets is None or sizes is None:  # the user's own objects
            return sets
        return Sets(*(self._indices(idx) for idx in (sets.A, sets.B, sets.C)))

    def next_sets(self, state: S) -> tuple[Sets, S]:
        """The sets of the next iteration; where they have run out, the state is the last but one.

        A is then everything, or the same once more.
        """
        sets = self.sample(state.record.iteration + 1, state.sizes)
        if sets is not None:
            return sets, state
        full = self.evaluator.subsets.full
        A = state.here.idx if full is None else full
        return replace(state.sets, A=A), replace(state, last=True)

    def _indices(self, idx: Any) -> Any:
        return self.space.indices(idx) if isinstance(idx, np.ndarray) else idx


@dataclass(frozen=True)
class Trial:
    """A step that a search proposes: the direction d, to the point x.

    `value` and `gradient` are on C, as far as the search computed them. `promised` is the decrease
    of its objective without the damping, `modelled` that of the quadratic model.
    """

    x: Array
    d: Array | None
    value: float
    gradient: Array | None
    promised: float
    modelled: float
    inner_iterations: int
    basis: Basis
