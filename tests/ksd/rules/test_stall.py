"""Stall: when a run has stopped making progress."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ksdmin
from ksdmin._ksd import presets
from ksdmin._ksd.rules import set_sizes
from ksdmin._ksd.rules.stall import Stall
from tests.ksd.rules.outcomes import NAN, better_and_worse, outcome, outcomes

PROGRESS = outcome(gradient_norm=1.0)
NONE = outcome(0.0, gradient_norm=1.0)
REFUSED = outcome(-1.0, accepted=False)
stalls = st.builds(Stall, st.floats(0, 1e100), st.integers(0, 10))


def after(stall, *steps):
    for told in steps:
        stall = stall.after(told)
    return stall


@pytest.mark.parametrize("told", [NONE, REFUSED, outcome(NAN, gradient_norm=1.0)])
def test_a_run_without_progress_stalls_after_some_steps(told):
    assert not after(Stall(1.0), told).stalled
    assert after(Stall(1.0), *[told] * 10).stalled


def test_progress_clears_it():
    stalled = after(Stall(1.0), *[NONE] * 10)
    assert stalled.stalled
    assert not after(stalled, PROGRESS).stalled
    assert not after(stalled, replace(NONE, gradient_norm=0.5)).stalled  # that is progress, too


@given(st.lists(st.sampled_from([NONE, REFUSED]), max_size=10))
def test_progress_counts_whatever_came_before(run):
    assert after(Stall(1.0), *run, PROGRESS) == after(Stall(1.0), PROGRESS)


@given(stalls, better_and_worse(), st.floats(0, 10), st.floats(0, 1e100))
def test_a_better_reduction_never_counts_for_more(stall, reductions, noise, norm):
    _, better, worse = reductions
    good, bad = (
        stall.after(outcome(actual, noise=noise, gradient_norm=norm)) for actual in (better, worse)
    )
    assert good.count <= bad.count


@pytest.mark.parametrize("noise", ["noise", "gradient_noise"])
def test_what_rounding_may_hide_is_no_progress(noise):
    told = outcome(1e-9, gradient_norm=1.0, **{noise: 1e-8})
    assert after(Stall(1.0), *[told] * 10).stalled


@given(stalls, outcomes)
def test_a_step_without_products_is_never_blamed(stall, told):
    assert stall.after(replace(told, measured=False)).count <= stall.count


def test_a_search_that_finds_nothing_at_all_is_enough():
    assert after(Stall(1.0), replace(NONE, moved=False)).stalled


def test_unless_there_are_steps_of_another_kind():
    other = replace(NONE, moved=False, last_resort=False)
    assert not after(Stall(1.0), other, other).stalled
    assert after(Stall(1.0), other, other, other).stalled


@given(stalls, st.floats(0, 1e100))
def test_after_a_change_it_begins_to_count_again(stall, norm):
    assert not stall.cleared().stalled
    assert stall.cleared().least_gradient == stall.least_gradient
    assert stall.restarted(norm) == Stall(norm)


@given(st.lists(outcomes, max_size=10))
def test_off_is_never_stalled(run):
    assert not after(Stall.off(1.0), *run).stalled
    assert not after(Stall.off(1.0), *run).cleared().stalled
    assert not after(Stall.off(1.0), *run).restarted(2.0).stalled


# Runs


def test_sets_that_grow_to_everything_start_with_fresh_patience(losses, monkeypatch):
    """Three steps on small sets are refused, and the sets become the whole: no precision loss."""
    refused = []

    def accepts(actual, noise):
        refused.append(len(refused) < 3)
        return not refused[-1]

    preset = replace(presets.DEFAULT, accepts=accepts)
    monkeypatch.setitem(presets.PRESETS, "default", preset)
    monkeypatch.setattr(set_sizes, "doubled", lambda size, n: n)
    res = ksdmin.minimize(
        losses.fun,
        losses.x0,
        jac=losses.jac,
        hessp=losses.hessp,
        subsets=ksdmin.Subsets(losses.n, curvature=30, search=30),
        rng=0,
    )
    assert sum(refused) == 3
    assert res.history["size_B"][-1] == losses.n
    assert res.success
