"""How many vectors a run keeps: the defaults, and a budget of memory."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess_prod

import ksdmin
from ksdmin._ksd.dimensions import WIDE, Dimensions, choose_dimensions, choose_parts
from ksdmin._ksd.judge import held_back, next_width
from ksdmin._ksd.policies import Outcome
from ksdmin._options import Options
from ksdmin._problem.arrays import Space

N = 1000
SPACE = Space(np.zeros(N))


def choose(parts=None, space=SPACE, **options):
    return choose_dimensions(space, Options(**options), parts)


def test_defaults():
    assert choose() == Dimensions(100, 100, memory=1, whole_memory=1, pairs=40)
    assert choose(parts=20) == Dimensions(20, 100, memory=5, whole_memory=1, pairs=40)


@pytest.mark.parametrize(
    ("samples", "length", "parts"),
    [
        (100, N, 20),
        (20_000, N, 20),
        (30_000, N, 30),
        (10**7, N, 40),
        (10**7, WIDE // (8 * 25), 25),
        (10**7, WIDE // 8, 20),
        (None, N, 20),  # the user draws the sets
    ],
)
def test_nets_of_many_samples_take_a_larger_space(samples, length, parts):
    """One vector for every thousand, as far as memory holds them."""
    space, subsets = SimpleNamespace(n=length, itemsize=8), SimpleNamespace(n=samples)
    net = SimpleNamespace(space=space, subsets=subsets, nonlinear=True)
    assert choose_parts(net, 20, 40) == parts
    linear = SimpleNamespace(space=space, subsets=subsets, nonlinear=False)
    assert choose_parts(linear, 20, 40) == 20


def test_the_width_follows_the_model():
    """It grows where a full space told the decrease, and falls back where the model was off."""
    dims = choose(parts=20)
    assert dims.next_width(20, full=True, achieved=0.9, modelled=1.0) == 24
    assert dims.next_width(90, full=True, achieved=0.9, modelled=1.0) == 100
    assert dims.next_width(24, full=False, achieved=0.9, modelled=1.0) == 24
    assert dims.next_width(24, full=True, achieved=0.8, modelled=1.0) == 24
    assert dims.next_width(24, full=True, achieved=0.7, modelled=1.0) == 20
    assert dims.next_width(20, full=False, achieved=-1.0, modelled=1.0) == 20
    assert dims.next_width(24, full=True, achieved=np.nan, modelled=1.0) == 20
    given = choose(parts=20, krylov_dim=30)
    assert given.next_width(30, full=True, achieved=0.9, modelled=1.0) == 30


@pytest.mark.parametrize(
    ("damping", "partial", "width"),
    [(0.0, True, 24), (0.02, True, 24), (0.03, True, 20), (0.0, False, 20)],
)
def test_steps_that_damping_holds_back_leave_the_width_as_it_is(damping, partial, width):
    assert width_after(20, partial=partial, damping=damping) == width


@pytest.mark.parametrize(("nonlinear", "width"), [(True, 40), (False, 46)])
def test_nets_widen_their_space_to_twice_at_most(nonlinear, width):
    assert width_after(38, nonlinear=nonlinear) == width


def width_after(width, partial=True, damping=0.0, nonlinear=True):
    """Of a full space whose model told the decrease, after a step of length 2."""
    run = SimpleNamespace(dims=choose_dimensions(SPACE, Options(), 20, nonlinear))
    state = SimpleNamespace(partial=partial, damping=damping, width=width)
    trial = SimpleNamespace(basis=SimpleNamespace(full=True), promised=1.0)
    outcome = Outcome(promised=1.0, expected=1.0, achieved=0.9, noise=0.0, modelled=1.0)
    held = held_back(state, trial, step_norm=2.0)
    return next_width(run, state, trial, outcome, held)


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


@pytest.mark.parametrize("options", [{}, {"krylov_dim": 20}])
def test_a_run_widens_its_space_unless_the_dimension_is_given(options):
    res = ksdmin.minimize(**decades(), options={"maxiter": 12, **options})
    most = max(res.history["dim"])
    assert most <= 25 if options else most > 25


def test_a_wider_space_saves_passes():
    free = ksdmin.minimize(**decades(), options={"gtol": 1e-7})
    narrow = ksdmin.minimize(**decades(), options={"gtol": 1e-7, "krylov_dim": 20})
    assert free.success
    assert free.passes < 0.7 * narrow.passes


def test_a_dimension_that_is_given_holds_for_all_sets():
    given = choose(parts=20, krylov_dim=30, memory=3)
    assert given == Dimensions(30, 30, memory=3, whole_memory=3, pairs=40)


def test_a_wide_basis_for_the_whole_set_stays_small():
    """A billion bytes hold 50 vectors of so many numbers; K itself is not touched."""
    long = Space(np.zeros(WIDE // (8 * 50)))
    assert choose(space=long, parts=20).whole_dim == 50
    longer = Space(np.zeros(WIDE // (8 * 10)))
    assert choose(space=longer, parts=20).whole_dim == 20


@pytest.mark.parametrize("vectors", [1, 2, 5, 6, 12, 29, 30, 100, 250, 10_000])
@pytest.mark.parametrize("parts", [None, 20])
def test_a_budget_is_kept(vectors, parts):
    """All of it is used, as far as that is any good."""
    dims, free = choose(parts, memory_budget=vectors * N * 8), choose(parts)
    assert dims.vectors <= vectors
    assert dims.krylov_dim >= 1
    if free.vectors <= vectors:
        assert dims == free
    else:
        assert dims.krylov_dim == free.krylov_dim or dims.vectors == vectors


def test_the_budget_counts_bytes_of_the_dtype():
    small = Space(np.zeros(N, dtype=np.float32))
    budget = 40 * N * 8
    assert choose(space=small, parts=20, memory_budget=budget) == choose(
        parts=20, memory_budget=2 * budget
    )


def test_a_budget_for_less_than_a_vector_is_refused():
    with pytest.raises(ValueError, match=r"memory_budget=.*at least one vector"):
        choose(memory_budget=N * 8 - 1)


def test_a_run_keeps_to_its_budget():
    n = 50
    options = {"memory_budget": 8 * n * 10}
    res = ksdmin.minimize(rosen, np.zeros(n), jac=rosen_der, hessp=rosen_hess_prod, options=options)
    assert res.success
    assert 1 < res.history["dim"].max() <= 9  # and the direction before it
