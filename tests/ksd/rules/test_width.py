"""Width: how many Krylov vectors an iteration on samples may have."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ksdmin
from ksdmin._ksd.rules.width import Width
from tests.ksd.rules.outcomes import NAN, better_and_worse, outcome, outcomes


@st.composite
def widths(draw):
    narrowest, value, widest = sorted(draw(st.tuples(*[st.integers(3, 200)] * 3)))
    return Width(value, narrowest, widest)


# The rule


@given(widths(), outcomes, st.booleans())
def test_it_stays_between_narrowest_and_widest(width, told, limited):
    after = width.after(told, limited_by_damping=limited)
    assert width.narrowest <= after.value <= width.widest
    assert (after.narrowest, after.widest) == (width.narrowest, width.widest)


@given(widths(), better_and_worse(), st.booleans())
def test_a_better_reduction_never_gives_a_narrower_space(width, reductions, full):
    predicted, better, worse = reductions
    after = [
        width.after(outcome(actual, predicted, space_is_full=full)).value
        for actual in (better, worse)
    ]
    assert after[0] >= after[1]


@given(widths(), outcomes)
def test_a_step_that_the_damping_limited_says_nothing(width, told):
    assert width.after(told, limited_by_damping=True) == width


@given(widths(), outcomes)
def test_it_widens_only_where_the_space_was_full(width, told):
    assert width.after(replace(told, space_is_full=False)).value <= width.value


@pytest.mark.parametrize(("actual", "predicted"), [(-1.0, 1.0), (0.1, 1.0), (NAN, 1.0), (1.0, NAN)])
@pytest.mark.parametrize("full", [True, False])
def test_a_bad_step_narrows_it(actual, predicted, full):
    width = Width(50, 20, 100)
    assert width.after(outcome(actual, predicted, space_is_full=full)).value < 50


@given(widths(), st.integers(1, 1000), st.integers(2, 8))
def test_larger_sets_have_fewer_vectors_for_the_same_cost(width, size, times):
    after = width.on_larger_sets(size, times * size)
    assert 1 <= after.narrowest <= after.value <= width.value
    if width.narrowest < width.widest:
        assert after.value * times <= max(width.value, times)


def test_a_fixed_width_stays_on_larger_sets():
    assert Width.off(20).on_larger_sets(100, 800) == Width.off(20)


@given(widths(), st.integers(1, 30))
def test_it_recovers_from_bad_steps(width, bad):
    for actual in [-1.0] * bad + [1.0] * 60:
        width = width.after(outcome(actual, space_is_full=True))
    assert width.value == width.widest


@given(st.integers(1, 200), outcomes, st.booleans())
def test_off_stays_off(K, told, limited):
    assert Width.off(K).after(told, limited_by_damping=limited) == Width.off(K)


# Runs


def decades(n_samples=4000, n=100):
    """Least squares whose Hessian spans six decades: a space of 20 vectors is far too small."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_samples, n)) * np.geomspace(1, 1e-3, n)
    y = X @ rng.standard_normal(n)
    return {
        "fun": lambda x, idx: np.mean((X[idx] @ x - y[idx]) ** 2) / 2,
        "x0": np.zeros(n),
        "jac": lambda x, idx: (X[idx] @ x - y[idx]) @ X[idx] / len(y[idx]),
        "hessp": lambda x, p, idx: (X[idx] @ p) @ X[idx] / len(y[idx]),
        "subsets": ksdmin.Subsets(n_samples, 1.0, 0.25, 0.25),
        "rng": 0,
    }


@pytest.mark.parametrize("options", [{}, {"krylov_dim": 20}, {"without": ["width"]}])
def test_a_run_widens_its_space_unless_it_is_told_not_to(options):
    res = ksdmin.minimize(**decades(), options={"maxiter": 12, **options})
    on_samples = res.history["size_B"] < 4000
    most = max(res.history["dim"][on_samples])
    first = options.get("krylov_dim", 4000 // 1000) + 5  # with the previous directions
    assert most <= first if options else most > first


def test_a_wider_space_saves_passes():
    free = ksdmin.minimize(**decades(), options={"gtol": 1e-7})
    narrow = ksdmin.minimize(**decades(), options={"gtol": 1e-7, "krylov_dim": 20})
    assert free.success
    assert free.passes < 0.7 * narrow.passes
