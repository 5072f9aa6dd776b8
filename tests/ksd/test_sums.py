"""Sums of losses: sets that grow until they are everything, and the optimum of the whole."""

import numpy as np
import pytest
from scipy.special import expit

import ksdmin
from tests.linear_models import logistic

M, N = 8000, 12
RNG = np.random.default_rng(0)
X = RNG.standard_normal((M, N)) * np.geomspace(1, 30, N)
Y = np.where(RNG.random(M) < expit(X @ RNG.standard_normal(N) / 10), 1.0, -1.0)
LOSS = logistic(X, Y, l2=1e-4)
fun, jac = LOSS["fun"], LOSS["jac"]


def run(rng=0, subsets=M, fun=fun, **options):
    given = {**LOSS, "fun": fun, "x0": np.zeros(N), "subsets": subsets, "rng": rng}
    return ksdmin.minimize(**given, options=options)


@pytest.fixture(scope="module")
def optimum():
    """By Newton's method on the dense Hessian."""
    w = np.zeros(N)
    for _ in range(30):
        H = np.array([LOSS["hessp"](w, e) for e in np.eye(N)])
        w = w - np.linalg.solve(H, jac(w))
    assert np.abs(jac(w)).max() < 1e-13
    return fun(w)


@pytest.mark.parametrize("rng", range(2))
def test_converges_to_the_optimum_of_the_whole_set(optimum, rng):
    res = run(rng, gtol=1e-10)
    assert res.success
    assert np.abs(jac(res.x)).max() <= 1e-10
    assert res.fun == pytest.approx(optimum, abs=1e-13)


@pytest.mark.parametrize("rng", range(2))
@pytest.mark.parametrize("share", [0.02, 0.1])
def test_a_partial_gradient_set_grows_until_it_is_everything(optimum, rng, share):
    res = run(rng, ksdmin.Subsets(M, gradient=share), gtol=1e-9)
    history = res.history
    sizes = history["size_A"]
    assert res.success
    assert res.fun == pytest.approx(optimum, abs=1e-12)
    assert sizes[0] == round(share * M)
    assert sizes[-1] == M
    assert (np.diff(sizes) >= 0).all()


@pytest.mark.parametrize("rng", range(2))
def test_a_step_that_the_whole_set_refuses_ends_the_sampling(rng):
    """One-hot features whose labels follow from them: a sample of them fits itself."""
    draw = np.random.default_rng(1)
    codes = draw.integers(6, size=(4000, 12)) + 6 * np.arange(12)
    F = np.zeros((4000, 72))
    np.put_along_axis(F, codes, 1.0, axis=1)
    y = np.where(F @ draw.standard_normal(72) > 0, 1.0, -1.0)
    loss = {**logistic(F, y, l2=1e-8), "hessp": None}
    res = ksdmin.minimize(**loss, x0=np.zeros(72), subsets=4000, rng=rng, options={"gtol": 1e-7})
    history = res.history
    accepted, size_B = history["accepted"], history["size_B"]
    sampled = size_B[:-1] < 4000
    refused = np.flatnonzero(sampled & ~accepted[1:].astype(bool)) + 1
    assert res.success
    assert refused.size == 1  # the first one is the last
    assert size_B[refused[0]] == 4000


def test_steps_are_judged_on_samples_that_the_gradient_has_not_seen():
    """A partial A is drawn anew, and both values of a comparison are of the new one."""
    seen = []

    def watched(w, idx):
        seen.append((tuple(w), tuple(idx) if not isinstance(idx, slice) else "whole"))
        return fun(w, idx)

    subsets = ksdmin.Subsets(M, gradient=400, curvature=100, search=100)
    res = run(0, subsets, watched, maxiter=2, gtol=0)
    of_size_A = [(w, idx) for w, idx in seen if len(idx) == 400]
    assert len({idx for _, idx in of_size_A}) == 3  # the first, and one an iteration
    # The last point and the new one, on each but the first; there x0, and a value that checks jac
    assert len(of_size_A) == 6
    assert res.history["size_A"].tolist() == [400] * 3


def test_own_sets_are_judged_too():
    """A step up is not taken, though every iteration brings other samples."""

    def draw(iteration, rng):
        return rng.choice(M, 2000), rng.choice(M, 3), rng.choice(M, 3)

    subsets = ksdmin.Subsets(draw, full=slice(None))
    res = run(0, subsets, maxiter=12)
    accepted = res.history["accepted"]
    assert not accepted.all()
    assert accepted[1:].any()
    assert res.fun < fun(np.zeros(N))


@pytest.mark.parametrize(("preset", "returns"), [(ksdmin.PAPER, True), ({}, False)])
def test_a_gradient_set_too_small_to_tell_convergence(preset, returns):
    """The whole set is asked; the default stays with it, PAPER draws small ones again."""
    y = np.repeat([0.0, 1.0], 20)
    res = ksdmin.minimize(
        lambda w, idx: float(np.mean((w[0] - y[idx]) ** 2) / 2),
        np.zeros(1),
        jac=lambda w, idx: np.mean(w[0] - y[idx], keepdims=True),
        hessp=lambda w, p, idx: p,
        subsets=ksdmin.Subsets(40, gradient=1, curvature=1, search=1),
        rng=0,
        options={**preset, "maxiter": 12},
    )
    sizes = res.history["size_A"].tolist()[1:]
    assert 40 in sizes
    assert (1 in sizes[sizes.index(40) :]) is returns


def sparse_regression():
    """Words in texts: every sample shows a few of the weights only."""
    rng = np.random.default_rng(0)
    X = rng.random((3000, 800)) * (rng.random((3000, 800)) < 0.02)
    y = np.where(X @ rng.standard_normal(800) + rng.standard_normal(3000) / 6 > 0, 1.0, -1.0)
    return {**logistic(X, y, l2=1e-4), "x0": np.zeros(800), "subsets": 3000}


@pytest.mark.parametrize("rng", [0, 1])
def test_where_samples_show_little_the_model_takes_over(rng):
    """Sampling used to go on to the end, with a Krylov space in every step: twice the passes."""
    found, with_spaces = (
        ksdmin.minimize(**sparse_regression(), rng=rng, options={"gtol": 1e-6, "without": without})
        for without in ((), ("quasi-newton",))
    )
    assert found.success
    assert found.fun == pytest.approx(with_spaces.fun, rel=1e-6)
    assert found.passes < 0.75 * with_spaces.passes
    of_samples = found.history["size_B"][:-1] < 3000  # a row has the sets of the next step
    without_products = np.diff(found.history["nhev"]) == 0
    assert np.sum(of_samples & without_products) > 5
