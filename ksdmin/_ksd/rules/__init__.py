"""The rules: whatever adapts during a run, a small class each, those of one idea in a file.

A rule is a frozen value with its state and its constants, and says where these come from. Its
method ``after(outcome)`` is the rule after a step (see :class:`ksdmin._ksd.outcome.Outcome`).

`first_rules` in ``_ksd/start.py`` is the one place where they are switched on or off: by the option
``without``, and by the presets. To add a rule: a file here, a field of `Rules`, a line in
`first_rules`, its name in ``ksdmin._options.RULES``, and the place in ``_ksd/step.py`` where its
value changes a run.
"""

from __future__ import annotations

from dataclasses import dataclass

from ksdmin._ksd.rules.contest import Contest
from ksdmin._ksd.rules.damping import SearchDamping
from ksdmin._ksd.rules.quasi_newton import QuasiNewtonChoice
from ksdmin._ksd.rules.set_sizes import OneSet, SetSizes
from ksdmin._ksd.rules.space import Forcing, Width
from ksdmin._ksd.rules.stall import FinerArithmetic, Stall
from ksdmin._ksd.rules.whole_curvature import GaussNewtonDamping, NewtonChoice


@dataclass(frozen=True)
class Rules:
    """The rules of a run, each as it stands."""

    damping: SearchDamping  # how far a step on samples may go
    forcing: Forcing  # when the Krylov space is large enough
    width: Width  # whether it may be wide on samples
    set_sizes: SetSizes  # how many samples A, B and C have
    one_set: OneSet  # the same where all three are one set
    quasi_newton: QuasiNewtonChoice  # when a step may rest on the quasi-Newton model alone
    newton: NewtonChoice  # when a step takes the whole curvature matrix
    # The dampings of a step that takes the Jacobian of residuals, and when it does.
    gauss_newton: GaussNewtonDamping
    contest: Contest  # whether such a step is the next one, where it can be made
    finer_arithmetic: FinerArithmetic  # when the problem is asked for less rounding
    stall: Stall  # when a run makes no progress
