"""PAPER and the default: what each policy says, and that the loop listens to it."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess_prod

import ksdmin
from ksdmin._ksd.krylov import krylov_basis
from ksdmin._ksd.policies import (
    AS_PRINTED,
    DEFAULT,
    Outcome,
    Paying,
    always,
    fixed,
    growing,
    if_not_worse,
    inexact_newton,
    thorough,
)
from ksdmin._options import parse_options
from ksdmin._problem.arrays import Space
from ksdmin._problem.subsets import Sizes


def grown(sizes, told, n, stalled=False):
    return growing(sizes, told, n, stalled)


def outcome(promised=1.0, achieved=1.0, noise=0.0, modelled=1.0, expected=None):
    expected = promised if expected is None else expected
    return Outcome(promised, expected, achieved, noise, modelled)


def run(n=10, options=ksdmin.PAPER, **more):
    options = {"maxiter": 5, **options, **more}
    x0 = np.linspace(-1.2, 1, n)
    return ksdmin.minimize(rosen, x0, jac=rosen_der, hessp=rosen_hess_prod, options=options)


# PAPER


def test_paper_has_the_papers_numbers():
    options = parse_options(ksdmin.PAPER)
    assert (options.krylov_dim, options.memory, options.floor) == (20, 1, 1e-4)
    assert options.policies is AS_PRINTED


def test_paper_cannot_be_changed_but_extended():
    with pytest.raises(TypeError):
        ksdmin.PAPER["krylov_dim"] = 80
    more = ksdmin.PAPER | {"krylov_dim": 80}
    assert (more["krylov_dim"], more["floor"]) == (80, 1e-4)
    assert ksdmin.PAPER["krylov_dim"] == 20


def test_paper_adjoins_one_direction_from_the_start():
    """e_1 stands in on the first iteration; then the last step."""
    assert run(krylov_dim=4).history["dim"].tolist() == [0, 5, 5, 5, 5, 5]


def test_memory_counts_the_directions():
    dims = run(krylov_dim=4, memory=3).history["dim"]
    assert dims.tolist() == [0, 5, 6, 7, 7, 7]
    assert run(krylov_dim=4, memory=0).history["dim"].tolist() == [0, 4, 4, 4, 4, 4]


def test_paper_takes_every_step_and_keeps_the_sizes():
    """On sets of a few samples many steps lead up."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)), 5 * rng.standard_normal(40)

    def fun(x, idx):
        return float(np.mean((X[idx] @ x - y[idx]) ** 2))

    def jac(x, idx):
        return 2 * X[idx].T @ (X[idx] @ x - y[idx]) / len(y[idx])

    subsets = ksdmin.Subsets(40, curvature=4, search=4)
    options = ksdmin.PAPER | {"maxiter": 12, "krylov_dim": 2}
    res = ksdmin.minimize(fun, np.zeros(3), jac=jac, subsets=subsets, rng=0, options=options)
    history = res.history
    assert (np.diff(history["value"]) > 0).sum() > 3
    assert history["accepted"].all()
    assert (history["step_norm"][1:] > 0).all()
    assert set(history["size_B"]) == set(history["size_C"]) == {4}
    assert res.fun == min(history["value"])  # the best point is not lost

    options = {"maxiter": 12, "krylov_dim": 2}
    res = ksdmin.minimize(fun, np.zeros(3), jac=jac, subsets=subsets, rng=0, options=options)
    values = res.history["value"]
    assert (np.diff(values) <= 1e-12 * abs(values[0])).all()  # the default takes none of these
    assert not res.history["accepted"].all()
    assert (res.history["step_norm"][~res.history["accepted"]] == 0).all()
    assert res.history["size_B"][-1] > 4


def test_papers_answers():
    assert AS_PRINTED.grown is None
    assert not thorough(3, 1e-300, 1.0)
    assert always(outcome(achieved=-1e9))
    sizes = Sizes(10, 2, 2)
    assert fixed(sizes, outcome(achieved=-1.0, expected=0.0), 10, True) is sizes


# The default's


@pytest.mark.parametrize(
    ("achieved", "taken"),
    [(1.0, True), (0.0, True), (-1e-9, True), (-1e-7, False), (np.nan, False)],
)
def test_step_is_taken_if_not_worse(achieved, taken):
    assert if_not_worse(outcome(achieved=achieved, noise=1e-8)) is taken


@pytest.mark.parametrize(
    ("achieved", "B", "C"),
    [(0.6, 12, 3), (0.5, 12, 3), (0.4, 24, 6), (-1.0, 24, 6), (np.nan, 24, 6)],
)
def test_sets_double_where_less_than_half_of_the_promise_was_kept(achieved, B, C):
    assert grown(Sizes(40, 12, 3), outcome(achieved=achieved), 50) == Sizes(40, B, C)


def test_noise_is_no_reason_to_grow():
    sizes = Sizes(40, 12, 3)
    assert grown(sizes, outcome(1e-6, achieved=1e-7, noise=1e-6), 50) == sizes


def test_a_run_that_stalls_lets_all_sets_grow():
    assert grown(Sizes(20, 12, 3), outcome(), 50, stalled=True) == Sizes(50, 24, 6)


def test_more_than_half_of_the_samples_is_everything():
    assert grown(Sizes(50, 13, 12), outcome(achieved=0.0), 50) == Sizes(50, 50, 24)


@pytest.mark.parametrize(
    ("expected", "achieved", "sizes"),
    [
        (0.5, 0.5, Sizes(100, 50, 50)),
        (0.4, 0.4, Sizes(200, 50, 50)),  # other samples than A's have less slope
        (0.4, -0.1, Sizes(200, 50, 50)),
        (0.6, 0.1, Sizes(100, 100, 100)),  # the slope was right, what C said of the step was not
        (-1.0, -1.0, Sizes(200, 50, 50)),
    ],
)
def test_what_cost_a_step_its_promise_grows(expected, achieved, sizes):
    told = outcome(expected=expected, achieved=achieved)
    assert grown(Sizes(100, 50, 50), told, 1000) == sizes


def test_A_is_never_smaller_than_C():
    assert grown(Sizes(10, 10, 10), outcome(achieved=0.0), 1000) == Sizes(20, 20, 20)


def test_paying():
    paid = Paying(0.1)
    assert not paid(0, 1e-9, 0.0)  # nothing gained yet
    assert not paid(5, 0.11, 1.0)
    assert paid(5, 0.09, 1.0)


def test_inexact_newton_stops_at_the_residual():
    """The space grows until the Newton step in it has the residual asked for, and no further."""
    rng = np.random.default_rng(0)
    E, _ = np.linalg.qr(rng.standard_normal((30, 30)))
    H, g = E * np.geomspace(1, 100, 30) @ E.T, rng.standard_normal(30)

    def residual(V):
        c = np.linalg.solve(V @ H @ V.T, -V @ g)
        return np.linalg.norm(g + H @ V.T @ c) / np.linalg.norm(g)

    for forcing in (0.5, 0.1, 1e-3):
        basis = krylov_basis(
            Space(g), g, lambda w: w, lambda v: H @ v, [], 30,
            lambda growth, forcing=forcing: inexact_newton(growth, forcing),
        )  # fmt: skip
        assert 2 < basis.dim < 30
        assert residual(basis.V) <= forcing
        assert residual(basis.V[:-1]) > forcing


def test_singular_curvature_is_not_enough():
    """Where the Newton step does not exist the space grows on."""
    H = np.diag([0.0, 1.0, 2.0])
    g = np.array([1.0, 0.0, 0.0])
    basis = krylov_basis(
        Space(g),
        g,
        lambda w: w,
        lambda v: H @ v,
        [np.ones(3)],
        3,
        lambda growth: inexact_newton(growth, 0.5),
    )
    assert basis.dim == 2


# How the loop uses them


def test_policies_are_values():
    assert replace(AS_PRINTED) == AS_PRINTED != DEFAULT
    assert pickle.loads(pickle.dumps((AS_PRINTED, DEFAULT))) == (AS_PRINTED, DEFAULT)
    assert AS_PRINTED.name != DEFAULT.name


def test_one_policy_can_be_exchanged():
    """The paper's algorithm, but that no step is taken."""
    res = run(policies=replace(AS_PRINTED, accept=lambda outcome: False), maxiter=2)
    assert res.history["accepted"].tolist() == [True, False, False]
    assert len(set(res.history["value"])) == 1


def test_default_beats_the_paper_on_rosenbrock():
    """In work, which is what the default is for."""
    default, paper = run(50, {}, maxiter=None), run(50, maxiter=None)
    assert default.success
    assert paper.success
    assert default.history[-1].passes < paper.history[-1].passes
