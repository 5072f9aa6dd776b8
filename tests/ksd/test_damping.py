"""Damping: how far a step on samples may go, and how the damping fades."""

import numpy as np
import pytest
import torch

import ksdmin
from tests.nets import fitted_to_a_wave, tanh_net


def deep(l2=0.0):
    return fitted_to_a_wave(tanh_net(4, 8, 1).double(), l2=l2)


def run(problem, *, size=50, **options):
    subsets = ksdmin.Subsets(400, curvature=size, search=size)
    return ksdmin.minimize(problem, subsets=subsets, rng=0, options=options)


def first_step(problem, **options):
    """On sets that are large enough for a step without damping to be taken."""
    return run(problem, size=100, maxiter=1, **options).history["step_norm"][1]


def test_first_step_of_a_net_is_a_hundredth_of_the_start_at_most():
    problem = deep()
    bound = 0.01 * float(torch.linalg.vector_norm(problem.x0))
    assert 0 < first_step(problem) <= 1.01 * bound
    assert first_step(problem, damping=0) > bound


def test_steps_grow_tenfold_as_long_as_the_model_predicts_every_reduction():
    """Far more damping than there is curvature: steps are g / damping."""
    steps = run(deep(), maxiter=3, damping=1e6).history["step_norm"]
    assert steps[2] == pytest.approx(10 * steps[1], rel=0.1)
    assert steps[3] == pytest.approx(10 * steps[2], rel=0.1)


@pytest.mark.parametrize("end", [{"ftol": 0.05}, {"xtol": 0.05}], ids=["ftol", "xtol"])
def test_a_step_that_the_damping_keeps_short_does_not_end_the_run(end):
    options = {**end, "without": ["gauss-newton"]}  # whose damping is its own
    res, free = run(deep(), **options), run(deep(), damping=0, **options)
    assert res.success
    assert res.nit > 3
    assert res.fun < 1.1 * free.fun


def test_damping_stays_where_values_are_not_compared():
    """The paper does not, where A is another one each time: it is no sign of a bad model."""
    targets = np.random.default_rng(0).standard_normal((1000, 3))
    res = ksdmin.minimize(
        lambda x, idx: ((x - targets[idx]) ** 2).sum(axis=1).mean() / 2,
        np.full(3, 5.0),
        jac=lambda x, idx: x - targets[idx].mean(axis=0),
        hessp=lambda x, p, idx: p,
        subsets=ksdmin.Subsets(1000, gradient=100, curvature=50, search=50),
        rng=0,
        options=ksdmin.PAPER | {"damping": 1.0, "maxiter": 20},
    )
    assert np.linalg.norm(res.x - targets.mean(axis=0)) < 0.2


def test_a_model_that_is_linear_in_its_parameters_is_not_damped():
    problem = fitted_to_a_wave(tanh_net(4, 1).double())
    assert first_step(problem) == pytest.approx(first_step(problem, damping=0))
    assert first_step(problem, damping=1e3) < 0.01


def test_damping_is_gone_once_the_sets_are_whole():
    """The deterministic method converges."""
    problem = deep(l2=1e-3)
    subsets = ksdmin.Subsets(400, curvature=100, search=100)
    res = ksdmin.minimize(problem, subsets=subsets, rng=0, options={"gtol": 1e-6})
    assert res.success
    assert res.passes < 1700
    assert res.history["size_B"][-1] == 400
