"""How wide a Krylov space is while its curvature is of a sample.

As many vectors as cost two passes over all samples are no more work than the rest of the step. A
badly conditioned problem needs more of them: each step finds what a few vectors reach, and begins
anew. But B's own model gains by every vector, and what it gains beyond some number is the noise of
few samples. So the space goes on growing only as long as that pays on other samples, those of C:
one product of C says what a step is worth there.
"""

from __future__ import annotations

from collections.abc import Callable

from ksdmin._ksd.krylov import Growth
from ksdmin._ksd.state import KSDRun, KSDState
from ksdmin._problem.arrays import Array
from ksdmin._run.evaluator import Evaluator


def may_widen(run: KSDRun, state: KSDState) -> bool:
    """Whether the space may have more vectors than two passes pay for.

    The option krylov_dim is kept to. Nets take the same K always: wider spaces gain them nothing.
    """
    linear, given = not run.dims.nonlinear, run.options.krylov_dim is not None
    known = run.subsets.n is not None and run.subsets.size_of(state.sets.B) is not None
    return state.curvature_is_sampled and linear and not given and known


def narrow_dim(run: KSDRun, state: KSDState) -> int:
    """K without widening: what two passes pay for; where the curvature is of everything, all."""
    if not state.curvature_is_sampled:
        return run.dims.whole_dim
    n, B = run.subsets.n, run.subsets.size_of(state.sets.B)
    if not may_widen(run, state) or n is None or not B:
        return run.dims.krylov_dim
    return min(run.dims.krylov_dim, max(1, n // B))


def largest_dim(run: KSDRun, state: KSDState) -> int:
    """K; the option krylov_dim is kept to."""
    width = state.rules.width
    K = run.dims.whole_dim if may_widen(run, state) and width.wide else narrow_dim(run, state)
    if state.curvature_is_sampled or run.options.krylov_dim is not None:
        return K
    return width.most(state.record, K)


def wide_enough(run: KSDRun, evaluator: Evaluator, state: KSDState) -> Callable[[Growth], bool]:
    """The question whether a space should end, to be asked after each product.

    The rest of the step is a gradient on A and a search on C, which takes no less than a gradient
    there: so many products of B, by the sizes of the sets.
    """
    first = narrow_dim(run, state)
    if largest_dim(run, state) <= first:
        return lambda growth: False
    A, B, C = (run.subsets.size_of(s) or 1 for s in (state.here.idx, state.sets.B, state.sets.C))
    return Widening(lambda: evaluator.curvature(state.here.x, state.sets.C), first, (A + C) / B)


class Widening:
    """Whether a space should end: its last vectors gained less, for their work, than the step.

    A whole step gains the most for its work where its last part gains as much for its own (the
    marginal value theorem). The question is answered at the first number of vectors, and whenever
    there are twice as many as at the last answer.

    Parameters
    ----------
    curvature : callable
        () -> (v -> Hv) on other samples than those of the space.
    first : int
        The first number of vectors.
    rest : float
        The work of the step beside its products, in products.
    """

    def __init__(
        self, curvature: Callable[[], Callable[[Array], Array]], first: int, rest: float
    ) -> None:
        self._curvature, self._first, self._rest = curvature, first, rest
        self._dim, self._gain = 0, 0.0  # at the last answer
        self._product: Callable[[Array], Array] | None = None

    def __call__(self, growth: Growth) -> bool:
        """Whether it should end here."""
        k = growth.dim
        if k < max(self._first, 2 * self._dim):
            return False
        if not self._dim:
            self._dim, self._gain = k // 2, self.gain(growth, k // 2)
        gain = self.gain(growth, k)
        of_the_last = (gain - self._gain) / (k - self._dim)
        self._dim, self._gain = k, gain
        return of_the_last * (k + self._rest) <= gain

    def gain(self, growth: Growth, k: int) -> float:
        """What the Newton step of the first k vectors gains on the other samples, by their model.

        At the best length: the search finds that.
        """
        if k == 0:
            return 0.0
        if self._product is None:
            self._product = self._curvature()
        d, slope = growth.newton_step(k)
        curvature = float(d @ self._product(d))
        return slope * slope / (2 * curvature) if slope < 0 < curvature else 0.0
