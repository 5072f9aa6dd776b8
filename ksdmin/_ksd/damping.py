"""How far a step may go that rests on samples: the weight of |d|^2 / 2 in what is minimised.

HF damps its quadratic model so. KSD needs it early in the training of a net, where the search
would take very long steps for next to nothing, and end in regions that it never leaves. Its first
step is at most a share of the start point; then the damping fades as long as the quadratic model
tells the decrease: fast at first, until the model is off for once, as that first step may have been
far too short. It was not where a step did less than the model told; there less is enough. Where a
model is linear in its parameters long steps do no such harm, and there is no damping; nor for
functions, of which nothing is known. The basis is built without it: only the search is damped.
"""

from __future__ import annotations

from ksdmin._ksd.state import Run
from ksdmin._run.evaluator import Evaluated

REACH = 0.01  # of |x|: as far as the first step may go
POOR, GOOD = 0.25, 0.75  # of the decrease that the model promised (Martens 2010)
RAISE, LOWER = 3 / 2, 2 / 3
SHORT, OFF = 0.95, 1.1  # of what the model promised: at first, what lies between counts as told
OPENING = 1 / 10  # in place of LOWER, as long as that lasts


def first_damping(run: Run, here: Evaluated) -> float:
    """The option's, or what bounds the first step, |g| / damping, by a share of |x|."""
    if run.options.damping is not None:
        return run.options.damping
    size = run.space.norm(here.x) if run.evaluator.nonlinear else 0.0
    return run.space.norm(here.gradient) / (REACH * size) if size else 0.0


def told(achieved: float, modelled: float) -> bool:
    """Whether the model was right, or nearly so."""
    return modelled > 0 and SHORT < achieved / modelled < OFF


def adjusted(damping: float, achieved: float, modelled: float, opening: bool = False) -> float:
    """The next damping: less where the model told the decrease, more where it was far off."""
    if opening:
        return OPENING * damping
    if not modelled > 0 or not achieved >= POOR * modelled:
        return RAISE * damping
    return LOWER * damping if achieved > GOOD * modelled else damping
