"""Which steps are taken next: those that gain more for their work."""

from types import SimpleNamespace

import pytest

from ksdmin._ksd.pace import LEAST, MOST, WORTH, Pace


def record(iteration, value, passes):
    return SimpleNamespace(iteration=iteration, value=value, passes=passes)


def test_a_step_of_the_model_is_worth_a_share():
    pace = Pace(record(0, 3.0, 0)).after(record(0, 3.0, 0), record(1, 1.0, 20))
    assert pace.gain == pytest.approx(0.1)
    assert pace.worth == WORTH
    start = record(1, 1.0, 20)
    assert pace.paid(start, record(2, 1 - 0.21 * WORTH, 22))
    assert not pace.paid(start, record(2, 1 - 0.19 * WORTH, 22))


@pytest.mark.parametrize(("between", "worth"), [(0.1, LEAST), (0.9, MOST)])
def test_the_share_follows_the_better_steps(between, worth):
    """Each step with products leaves 1/2 of the value; the model's leave `between`, as cheaply."""
    end = record(0, 1.0, 0)
    pace = Pace(end)
    for i in range(1, 20, 2):
        start = record(i, end.value * (between if i > 1 else 1), end.passes + 10)
        end = record(i + 1, start.value / 2, start.passes + 10)
        pace = pace.after(start, end)
    assert pace.worth == pytest.approx(worth)
