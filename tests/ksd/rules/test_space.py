"""Forcing: how well the Newton step is solved for, and when the Krylov space is large enough."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ksdmin
from ksdmin._ksd.krylov import krylov_basis
from ksdmin._ksd.precond import IDENTITY
from ksdmin._ksd.rules.space import FIRST_PRODUCTS, LARGEST, Forcing, Width
from ksdmin._problem.arrays import Space
from tests.ksd.rules.outcomes import NAN, outcome, outcomes

forcings = st.builds(Forcing, st.floats(0, LARGEST))


# The rule


def stepped(actual=1.0, predicted=1.0, falls_to=1.0):
    """A step that was taken, and left `falls_to` of the gradient norm."""
    return outcome(actual, predicted, gradient_norm=falls_to, previous_gradient_norm=1.0)


@given(forcings, outcomes)
def test_it_stays_in_its_interval(forcing, told):
    assert 0 <= forcing.after(told).value <= LARGEST


@given(forcings, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_better_model_never_loosens_it(forcing, error, other, falls_to):
    """How far the model was off, either way."""
    less, more = sorted([error, other])
    for sign in (-1, 1):
        near, far = (stepped(1 + sign * e, falls_to=falls_to) for e in (less, more))
        assert forcing.after(near).value <= forcing.after(far).value


@given(forcings, st.floats(0, 2), st.floats(0, 2), st.floats(0, 2))
def test_a_gradient_that_falls_faster_never_loosens_it(forcing, actual, one, other):
    fast, slow = (stepped(actual, falls_to=norm) for norm in sorted([one, other]))
    assert forcing.after(fast).value <= forcing.after(slow).value


@given(forcings, outcomes)
def test_a_refused_step_never_changes_it(forcing, told):
    assert forcing.after(replace(told, accepted=False)) == forcing


@pytest.mark.parametrize("actual", [-1.0, NAN, 3.0])
@pytest.mark.parametrize("predicted", [1.0, 0.0, -1.0])
def test_a_model_that_was_far_off_asks_for_little_at_once(actual, predicted):
    assert Forcing(1e-3).after(stepped(actual, predicted)).value == LARGEST


@given(forcings)
def test_a_step_without_products_says_nothing_of_the_model(forcing):
    assert forcing.after(stepped(predicted=NAN)) == forcing


def test_an_accurate_model_tightens_it_by_degrees():
    values = [Forcing()]
    for _ in range(5):
        values.append(values[-1].after(stepped()))
    fall = [forcing.value for forcing in values]
    assert fall == sorted(fall, reverse=True)
    assert fall[1] > 0.5 * fall[0]
    assert fall[-1] < 0.01


@given(st.integers(1, 10))
def test_it_recovers_from_bad_steps(bad):
    forcing = Forcing(0.01)
    for actual in [-1.0] * bad + [1.0] * 10:
        forcing = forcing.after(stepped(actual))
    assert forcing.value < 0.01


# The space


def test_the_space_grows_until_the_newton_step_has_the_residual_asked_for():
    """And no further."""
    rng = np.random.default_rng(0)
    E, _ = np.linalg.qr(rng.standard_normal((30, 30)))
    H, g = E * np.geomspace(1, 100, 30) @ E.T, rng.standard_normal(30)

    def residual(V):
        c = np.linalg.solve(V @ H @ V.T, -V @ g)
        return np.linalg.norm(g + H @ V.T @ c) / np.linalg.norm(g)

    for forcing in (0.5, 0.1, 1e-3):
        enough = Forcing(forcing).satisfied
        basis = krylov_basis(Space(g), g, IDENTITY, lambda v: H @ v, [], 30, enough)
        assert 2 < basis.dim < 30
        assert residual(basis.V) <= forcing
        assert residual(basis.V[:-1]) > forcing


def test_singular_curvature_is_not_enough():
    """Where the Newton step does not exist the space grows on."""
    H = np.diag([0.0, 1.0, 2.0])
    g, enough = np.array([1.0, 0.0, 0.0]), Forcing(0.5).satisfied
    basis = krylov_basis(Space(g), g, IDENTITY, lambda v: H @ v, [np.ones(3)], 3, enough)
    assert basis.dim == 2


# Runs


def test_a_right_model_is_solved_well():
    """A quadratic: the model is exact, and the second step may be as good as the first asks for."""
    A = np.diag(np.geomspace(1, 1e4, 40))
    res = ksdmin.minimize(
        lambda x: x @ A @ x / 2 - x.sum(),
        np.zeros(40),
        jac=lambda x: A @ x - 1,
        hessp=lambda x, p: A @ p,
        options={"gtol": 1e-8, "pairs": 0, "without": ["width"]},
    )
    assert res.success
    assert res.nit <= 6


def test_a_space_has_no_more_vectors_than_the_run_has_had_gradients_and_products():
    counts = (1, 0), (6, 5), (40, 25), (300, 0)
    spent = [SimpleNamespace(njev=njev, nhev=nhev) for njev, nhev in counts]
    assert [Width().most(before, 100) for before in spent] == [FIRST_PRODUCTS, 11, 65, 100]
    assert [Width.off().most(before, 100) for before in spent] == [100] * 4
