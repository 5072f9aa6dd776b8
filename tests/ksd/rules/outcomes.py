"""Outcomes of steps, for the tests of the rules: by hand, and whatever may come."""

import math

from hypothesis import strategies as st

from ksdmin._ksd.outcome import Outcome

NAN = math.nan

finite = st.floats(-1e100, 1e100)
positive = st.floats(1e-100, 1e100)
anything = st.floats(-1e100, 1e100) | st.sampled_from([NAN, math.inf, -math.inf])
not_negative = st.floats(0, 1e100)


def outcome(actual=1.0, predicted=1.0, **more):
    """A step that search and model predicted to gain `predicted`, and that gained `actual`."""
    return Outcome(
        **{"actual": actual, "predicted_on_C": predicted, "model_reduction": predicted, **more}
    )


outcomes = st.builds(
    Outcome,
    actual=anything,
    predicted_on_C=anything,
    model_reduction=anything,
    slope_correction=anything,
    noise=not_negative,
    value_noise=not_negative,
    gradient_noise=not_negative,
    gradient_error=not_negative,
    compared=st.booleans(),
    accepted=st.booleans(),
    moved=st.booleans(),
    new_curvature=st.booleans(),
    last_resort=st.booleans(),
    step_norm=not_negative,
    gradient_norm=not_negative | st.just(NAN),
    previous_gradient_norm=not_negative | st.just(NAN),
)
"""Whatever a step may come to, and more."""


@st.composite
def better_and_worse(draw):
    """(predicted, better, worse): two actual reductions of the size of the predicted one."""
    predicted = draw(st.floats(1e-3, 1e3))
    ratios = st.floats(-10, 10)
    first, second = draw(ratios), draw(ratios)
    return predicted, max(first, second) * predicted, min(first, second) * predicted
