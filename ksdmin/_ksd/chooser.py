"""The chooser: which kind of step comes next. The only place that knows more than one kind.

If a sum of squares offers Gauss-Newton steps, they compete with all other kinds, turn by turn
(``_ksd/rules/contest.py``). So do Newton steps of a sum of losses without a matrix: they make one
of products, and the steps that use it again belong to them. Among the other kinds, a quasi-Newton
step comes first, as long as one of these holds:

- it is expected to lower the loss faster, for its passes, than the last step with products did
  (``_ksd/rules/quasi_newton.py``);
- it uses a factorised matrix that still serves (``_ksd/rules/whole_curvature.py``).

Otherwise the step is a Newton step if the matrix is less work than products, a Gauss-Newton step if
that is much less work, or else a Krylov step.

To add a kind: a file in ``_ksd/steps`` with a `NAME` and `offer(turn)`, a line in `CHOICES`, its
name in ``ksdmin._options.KINDS``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ksdmin._ksd.cost_model import Costs
from ksdmin._ksd.rules.contest import TRIAL_SHARE
from ksdmin._ksd.rules.quasi_newton import Forecast
from ksdmin._ksd.steps import gauss_newton, krylov, newton, quasi_newton
from ksdmin._ksd.steps.kind import Offer, Proposal, Turn
from ksdmin._problem.values import changed


def proposal(turn: Turn, excluded: tuple[str, ...] = ()) -> tuple[Proposal, Forecast | None]:
    """The next step, and the forecast of the quasi-Newton model for a step of its own.

    `excluded` are the kinds that were asked for a step and made none.
    """
    if turn.costs is not None and turn.costs.contested:
        turn = challenged(turn, turn.costs)
    name, offer, forecast = chosen(turn, excluded)
    found = offer.propose()
    if found.trial is not None or found.state.broken or found.state.held is not None:
        return found, forecast
    found, later = proposal(turn._replace(state=found.state), (*excluded, name))
    return found, later or forecast


def chosen(turn: Turn, excluded: tuple[str, ...]) -> tuple[str, Offer, Forecast | None]:
    """The name of the next kind, its step, which is still to be made, and the forecast."""
    forecast, out = None, turn.run.off.union(excluded) if excluded else turn.run.off
    for name, make, suits in CHOICES:
        offer = make(turn) if name not in out and suits(turn) else None
        if offer is None:
            continue
        forecast = offer.forecast or forecast
        if offer.forecast is None or comes_down_faster(turn, offer.forecast):
            return name, offer, forecast
    for name, make, _ in CHOICES:  # the kinds that suit are switched off: take any other
        offer = make(turn) if name not in out else None
        if offer is not None:
            return name, offer, forecast
    without = turn.run.options.without
    raise ValueError(f"option without={without!r}: no kind of step is left for this problem")


def challenged(turn: Turn, costs: Costs) -> Turn:
    """The turn, after the contest of the whole curvature and all others was asked who comes next.

    A matrix that is made of products may cost as much as hundreds of other steps. So it is not
    tried at once where one of those gains nothing.
    """
    run, _, state, _ = turn
    contest, K = state.rules.contest, run.dims.whole_dim
    if contest.is_new:
        contest = changed(contest, leads=costs.rows > 0 and costs.rows_come_first(K))
    others = costs.reused if may_rest_on_model(turn) else costs.krylov(K) + costs.gradient
    kept_short = contest.leads and costs.rows > 0 and state.rules.gauss_newton.falls
    if contest.idle or not kept_short:
        contest = contest.challenged(
            others if contest.leads else costs.gauss_newton(1),
            at_once=contest.leads or not costs.of_products,
        )
    state = state.with_rules(contest=contest)
    turn = turn._replace(state=state)
    if state.model.base is not None and not is_next(turn):  # the matrix is of the first kind
        turn = turn._replace(state=changed(state, model=state.model.without_base()))
    return turn


def is_next(turn: Turn) -> bool:
    """Whether the contest wants the first of its two kinds, and its last step gained something."""
    costs, rules = turn.costs, turn.state.rules
    if costs is None or not costs.contested:
        return False
    return rules.contest.first_is_next and not rules.newton.failed


def may_rest_on_model(turn: Turn) -> bool:
    """Whether the last steps allow a quasi-Newton step, or there is nothing better to try.

    Not while the damping is in its initial phase: the steps of Krylov spaces are too short then for
    a comparison.
    """
    state, costs, rules, idle = turn.state, turn.costs, turn.state.rules, False
    if costs is not None:
        if state.model.base is not None:
            return rules.newton.reusable(costs)
        if costs.of_products and is_next(turn):
            return False
        idle = costs.rows > 0 and rules.gauss_newton.allowed and rules.contest.idle
    may_follow = rules.quasi_newton.may_follow or idle
    return may_follow and not (rules.damping.initial_phase and state.damping > 0)


def comes_down_faster(turn: Turn, forecast: Forecast) -> bool:
    """Whether to prefer a quasi-Newton step to one with products."""
    state = turn.state
    if state.model.base is not None:
        return True
    if turn.run.sampled and state.curvature_is_sampled:
        return state.rules.quasi_newton.pays_on_samples(state.record, forecast)
    return state.rules.quasi_newton.pays(state.record, forecast)


def is_less_work(turn: Turn) -> bool:
    """Whether a Newton step is less work than a Krylov step, and the last one gained something.

    If its matrix is made of products, the contest decides.
    """
    run, _, state, costs = turn
    if costs is None:
        return False
    if costs.of_products:
        return is_next(turn)
    reused = newton.serves_more_steps(run, state)
    return state.rules.newton.worthwhile(costs, run.dims.whole_dim, reused=reused)


def replaces_products(turn: Turn) -> bool:
    """Whether a Gauss-Newton step costs so much less than a Krylov step that it comes before it.

    Both bring new curvature. The contest compares Gauss-Newton steps with all other kinds, also the
    cheap ones. If it has decided for the others, the next of them may be a Krylov step that costs
    many times as much.
    """
    costs = turn.costs
    if costs is None or not costs.rows or turn.state.rules.newton.failed:
        return False
    return costs.gauss_newton(1) <= TRIAL_SHARE * costs.krylov(turn.run.dims.whole_dim)


class Kind(NamedTuple):
    """A kind of step.

    Its memory (a damping, the age of a matrix, a width) is a frozen value among the rules of the
    state, which every outcome informs.
    """

    name: str  # as in ``res.history["kind"]`` and in the option ``without``
    offer: Callable[[Turn], Offer | None]  # a step of this kind; None where none can be made here
    suits: Callable[[Turn], bool]  # the condition under which it comes before the kinds below it


CHOICES = (
    Kind(gauss_newton.NAME, gauss_newton.offer, is_next),
    Kind(quasi_newton.NAME, quasi_newton.offer, may_rest_on_model),
    Kind(newton.NAME, newton.offer, is_less_work),
    Kind(gauss_newton.NAME, gauss_newton.offer, replaces_products),
    Kind(krylov.NAME, krylov.offer, lambda turn: True),  # it can always be made
)
