"""One sample in the place of A, B and C, for residuals at very many points."""

import numpy as np
import pytest
import torch

import ksdmin
from tests.nets import tanh_net
from tests.run.comparison import assert_same

SIZES = ("size_A", "size_B", "size_C")


def equation(points, seed=0):
    """u' = cos(x) u, u(0) = 1, by a small net."""
    net = tanh_net(1, 12, 1, seed=seed).double()
    generator = torch.Generator().manual_seed(seed)
    x = 3 * torch.rand(points, 1, dtype=torch.float64, generator=generator)

    def inside(net, x):
        x = x.requires_grad_()
        u = net(x)
        return torch.autograd.grad(u.sum(), x, create_graph=True)[0] - torch.cos(x) * u

    def start(net, x):
        return net(x) - 1

    return ksdmin.from_torch(net, residuals=[(inside, x), (start, torch.zeros_like(x[:1]))]), net


def noisy_fit(samples):
    """More parameters than samples, and targets that are noise."""
    net = tanh_net(2, 60, 20, 1).double()
    generator = torch.Generator().manual_seed(0)
    X, y = (
        torch.randn(samples, width, dtype=torch.float64, generator=generator) for width in (2, 1)
    )
    block = (lambda net, pairs: net(pairs[0]) - pairs[1]), (X, y)
    return ksdmin.from_torch(net, residuals=[block])


def test_a_step_costs_as_much_as_its_points_whatever_the_number_of_all():
    points = 15_000
    problem, net = equation(points)
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 60, "gtol": 1e-7})
    x = torch.linspace(0, 3, 50, dtype=torch.float64)[:, None]
    problem.load(res.x)
    error = (net(x) - torch.exp(torch.sin(x))).abs().max()
    assert error < 1e-3
    first = {name: res.history[name][0] for name in SIZES}
    assert len(set(first.values())) == 1
    assert first["size_A"] < points / 2
    early = res.history["iteration"] < 20
    assert res.history["passes"][early][-1] < 20 * 12 * first["size_A"] / points


def test_a_set_that_is_fitted_alone_grows():
    res = ksdmin.minimize(noisy_fit(600), rng=0, options={"maxiter": 60})
    sizes = res.history["size_A"]
    assert sizes[0] == 240
    assert sizes[-1] == 600
    assert (np.diff(sizes) >= 0).all()


def test_sizes_that_the_user_asks_for():
    subsets = ksdmin.Subsets(3001, 1.0, 500, 500)
    res = ksdmin.minimize(equation(3000)[0], subsets=subsets, rng=0, options={"maxiter": 3})
    assert [res.history[name][0] for name in SIZES] == [3001, 500, 500]


def test_a_saved_run_goes_on_bit_for_bit(tmp_path):
    options, path = {"maxiter": 25, "gtol": 0.0}, tmp_path / "run"
    whole = ksdmin.minimize(noisy_fit(600), rng=0, options=options)
    first = options | {"maxiter": 4, "checkpoint": path}
    ksdmin.minimize(noisy_fit(600), rng=0, options=first)
    assert_same(ksdmin.resume(path, noisy_fit(600), options={"maxiter": 25}), whole)


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"fmin": 1e-3}, ksdmin.Status.TARGET),
        ({"ftol": 1e-6}, ksdmin.Status.FTOL),
        ({"xtol": 1e-2}, ksdmin.Status.XTOL),
    ],
)
def test_tests_that_hold_on_the_set_are_made_on_all_samples(options, status):
    options = {"gtol": 0.0, "maxiter": 100, **options}
    res = ksdmin.minimize(equation(3000)[0], rng=0, options=options)
    assert res.status == status
    assert res.history["size_A"][-1] == 3001


def test_a_loss_that_overflows_elsewhere():
    x = torch.linspace(0, 3, 3000, dtype=torch.float64)[:, None]
    steep = torch.zeros_like(x)
    steep[:: len(x) // 4] = 1.0
    net = tanh_net(1, 12, 1).double()

    def inside(net, xs):
        u = net(xs[:, :1])
        return u - torch.cos(xs[:, :1]) + torch.exp(400 * xs[:, 1:] * u**2) - 1

    problem = ksdmin.from_torch(net, residuals=[(inside, torch.cat([x, steep], 1))])
    for seed in range(2):
        res = ksdmin.minimize(problem, rng=seed, options={"maxiter": 15})
        assert res.nit > 0
