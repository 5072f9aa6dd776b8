"""Gauss-Newton steps with the rows of a sample, where there is no room for all."""

import numpy as np
import torch

import ksdmin
from ksdmin._ksd.affordable import held_bytes
from tests.nets import tanh_net

SAMPLES, HIDDEN = 400, 10
KRYLOV = {"without": ["gauss-newton"]}


def equation(samples=SAMPLES, **given):
    """u'' = f on an interval, and both ends: rows that cost a few gradients."""
    model = tanh_net(1, HIDDEN, HIDDEN, 1).double()
    x = torch.linspace(-1, 1, samples, dtype=torch.float64)[:, None]

    def inside(model, x):
        x = x.requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        (bend,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
        return bend + torch.pi**2 * torch.sin(torch.pi * x)

    blocks = [(inside, x), (lambda model, x: model(x), x[[0, -1]].clone())]
    return ksdmin.from_torch(model, residuals=blocks, **given)


def options(problem, rows=SAMPLES // 4 + 1, **more):
    return {"memory_budget": held_bytes(len(problem.x0), rows), "gtol": 0.0, **more}


def test_rows_of_a_sample_come_closer_than_krylov_spaces():
    problem = equation()
    sampled = ksdmin.minimize(problem, rng=0, options=options(problem, maxiter=15))
    solver = ksdmin.Solver(problem, rng=0, options=options(problem) | KRYLOV)
    while (krylov := solver.result()).passes < sampled.passes:
        next(solver)
    assert set(sampled.history["size_A"]) == {SAMPLES + 2}
    assert set(sampled.history["size_B"]) == {(SAMPLES + 2) // 4}
    assert sampled.fun < 0.01 * krylov.fun


def test_the_loss_falls_at_every_step_to_that_of_all_rows():
    problem = equation(l2=1e-4)
    whole = ksdmin.minimize(problem, rng=0, options={"maxiter": 15, "gtol": 0.0})
    sampled = ksdmin.minimize(problem, rng=0, options=options(problem, maxiter=30))
    assert np.all(np.diff(sampled.history["value"]) <= 0)
    assert sampled.fun < 2 * whole.fun + 1e-6


def test_no_room_for_as_many_rows_as_a_krylov_space_has_vectors():
    problem = equation()
    res = ksdmin.minimize(problem, rng=0, options=options(problem, rows=90, maxiter=3))
    assert res.history["size_A"][0] > res.history["size_B"][0] == res.history["size_C"][0]
