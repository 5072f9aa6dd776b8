"""The Krylov step: a search within the space of Algorithm 2, made of products on the set B.

While its curvature is of a sample, as many vectors as cost two passes over all samples are no more
work than the rest of the step. A badly conditioned problem needs more of them: each step finds what
a few vectors reach, and begins anew. But B's own model gains by every vector, and what it gains
beyond some number is the noise of few samples. So the space goes on growing only as long as that
pays on other samples, those of C: one product of C says what a step is worth there (`Widening`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from ksdmin._ksd.krylov import Basis, Growth, krylov_basis
from ksdmin._ksd.state import KSDRun, KSDState
from ksdmin._ksd.steps.kind import (
    Offer,
    Proposal,
    Turn,
    model_preconditions,
    preconditioner,
    with_factors,
)
from ksdmin._ksd.steps.search import search
from ksdmin._problem.arrays import Array
from ksdmin._problem.values import changed
from ksdmin._run.evaluator import Evaluator

NAME = "krylov"


def offer(turn: Turn) -> Offer:
    """A step of the paper's own kind, which can always be made."""
    return Offer(partial(propose, turn))


def propose(turn: Turn) -> Proposal:
    """The step, and the state with what the preconditioner needed.

    No step if the first product is not finite: the state is broken.
    """
    run, evaluator, state, _ = turn
    if evaluator.traits.has_diagonal and state.here.diagonal is None:
        here = evaluator.evaluate(state.here.x, state.here.idx, diagonal=True)
        state = changed(state, here=here)
    state = with_factors(evaluator, state)
    basis = krylov_space(run, evaluator, state)  # Alg. 3, line 6
    if not basis.finite and basis.dim == 0:
        return Proposal(changed(state, broken=True), None)
    return Proposal(state, search(turn._replace(state=state), NAME, basis))


def krylov_space(run: KSDRun, evaluator: Evaluator, state: KSDState) -> Basis:
    """The Krylov space of Algorithm 2, on the set B."""
    # An old matrix would mislead, since products were less work.
    state = changed(state, model=state.model.without_base())
    here, rules = state.here, state.rules
    P = preconditioner(run, state, with_model=model_preconditions(run, state))
    free = run.movable(here)
    product = evaluator.curvature(here.x, state.sets.B)
    first, largest = dimensions(run, state)
    wide = widening(run, evaluator, state, first) if first < largest else None

    def enough(growth: Growth) -> bool:
        if rules.forcing.satisfied(growth) or evaluator.spent():
            return True
        return wide is not None and wide(growth)

    return krylov_basis(
        run.space,
        free(here.gradient),
        P,
        product if run.box is None else lambda v: free(product(v)),
        # A model already knows the curvature along them.
        () if state.learns or P.times is None else [free(d) for d in state.d_prev],
        largest,
        enough,
        # If the space will probably reach K, the device need not wait for the host.
        ahead=run.space.remote and (rules.forcing.value is None or state.curvature_is_sampled),
        noise=max(evaluator.product_error, evaluator.traits.noise or 0.0),
        rows_of=run.workspace.rows,
    )


def dimensions(run: KSDRun, state: KSDState) -> tuple[int, int]:
    """K at first, and how far the space may widen beyond it.

    On samples K is what two passes pay for. The option krylov_dim is kept to. Nets take the same K
    always: wider spaces gain them nothing.
    """
    dims, width, given = run.dims, state.rules.width, run.options.krylov_dim is not None
    if not state.curvature_is_sampled:
        K = dims.whole_dim if given else width.most(state.record, dims.whole_dim)
        return K, K
    n, B = run.subsets.n, run.subsets.size_of(state.sets.B)
    if dims.nonlinear or given or n is None or not B:
        return dims.krylov_dim, dims.krylov_dim
    first = min(dims.krylov_dim, max(1, n // B))
    return first, dims.whole_dim if width.wide else first


def widening(run: KSDRun, evaluator: Evaluator, state: KSDState, first: int) -> Widening:
    """The question whether a space should end, to be asked after each product.

    The rest of the step is a gradient on A and a search on C, which takes no less than a gradient
    there: so many products of B, by the sizes of the sets.
    """
    here, sets = state.here, state.sets
    A, B, C = (run.subsets.size_of(s) or 1 for s in (here.idx, sets.B, sets.C))
    return Widening(lambda: evaluator.curvature(here.x, sets.C), first, (A + C) / B)


class Widening:
    """Whether a space should end: its last vectors gained less, for their work, than the step.

    A whole step gains the most for its work where its last part gains as much for its own (the
    marginal value theorem). The question is answered at the first number of vectors, and whenever
    there are twice as many as at the last answer.
    """

    def __init__(
        self,
        # () -> (v -> Hv) on other samples than those of the space.
        curvature: Callable[[], Callable[[Array], Array]],
        first: int,  # the first number of vectors
        rest: float,  # the work of the step beside its products, in products
    ) -> None:
        self._product, self._first, self._rest = cache(curvature), first, rest
        self._dim, self._gain = 0, 0.0  # at the last answer

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
        d, slope = growth.newton_step(k)
        curvature = float(d @ self._product()(d))
        return slope * slope / (2 * curvature) if slope < 0 < curvature else 0.0
