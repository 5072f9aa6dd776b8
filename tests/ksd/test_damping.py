"""The damping of steps that rest on samples: where there is some, and how it fades."""

import numpy as np
import pytest
import torch

import ksdmin
from ksdmin._ksd.damping import adjusted, told


@pytest.mark.parametrize(
    ("achieved", "modelled", "factor"),
    [
        (1.0, 1.0, 2 / 3),
        (0.76, 1.0, 2 / 3),
        (0.74, 1.0, 1.0),
        (0.26, 1.0, 1.0),
        (0.24, 1.0, 3 / 2),
        (-1.0, 1.0, 3 / 2),
        (1.0, -1.0, 3 / 2),
        (np.nan, 1.0, 3 / 2),
        (1.0, np.nan, 3 / 2),
    ],
)
def test_damping_follows_the_model(achieved, modelled, factor):
    assert adjusted(6.0, achieved, modelled) == pytest.approx(6.0 * factor)


@pytest.mark.parametrize(
    ("achieved", "modelled", "right"),
    [
        (1.0, 1.0, True),
        (1.09, 1.0, True),
        (0.96, 1.0, True),
        (1.11, 1.0, False),
        (0.94, 1.0, False),
        (-1.0, -1.0, False),
        (1.0, np.nan, False),
        (np.nan, 1.0, False),
    ],
)
def test_what_counts_as_told(achieved, modelled, right):
    assert told(achieved, modelled) is right


def test_damping_falls_tenfold_as_long_as_the_model_is_right():
    assert adjusted(6.0, 1.0, 1.0, opening=True) == pytest.approx(0.6)


def net(*layers):
    torch.manual_seed(0)
    return torch.nn.Sequential(*layers).double()


def problem_of(model, n=400, l2=0.0):
    rng = torch.Generator().manual_seed(1)
    X = torch.randn(n, 4, generator=rng, dtype=torch.float64)
    y = torch.sin(3 * X[:, :1])
    return ksdmin.from_torch(model, torch.nn.MSELoss(), (X, y), l2=l2)


def deep(l2=0.0):
    return problem_of(net(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)), l2=l2)


def first_step(problem, **options):
    options = {"maxiter": 1, **options}
    subsets = ksdmin.Subsets(400, curvature=50, search=50)
    res = ksdmin.minimize(problem, subsets=subsets, rng=0, options=options)
    return res.history["step_norm"][1]


def test_first_step_of_a_net_is_a_hundredth_of_the_start_at_most():
    problem = deep()
    bound = 0.01 * float(torch.linalg.vector_norm(problem.x0))
    assert 0 < first_step(problem) <= 1.01 * bound
    assert first_step(problem, damping=0) > bound


def test_steps_grow_tenfold_as_long_as_the_model_tells_every_decrease():
    """Far more damping than there is curvature: steps are g / damping."""
    subsets = ksdmin.Subsets(400, curvature=50, search=50)
    options = {"maxiter": 3, "damping": 1e6}
    steps = ksdmin.minimize(deep(), subsets=subsets, rng=0, options=options).history["step_norm"]
    assert steps[2] == pytest.approx(10 * steps[1], rel=0.1)
    assert steps[3] == pytest.approx(10 * steps[2], rel=0.1)


@pytest.mark.parametrize("end", [{"ftol": 0.05}, {"xtol": 0.05}], ids=["ftol", "xtol"])
def test_a_step_that_the_damping_keeps_short_does_not_end_the_run(end):
    subsets = ksdmin.Subsets(400, curvature=50, search=50)
    res = ksdmin.minimize(deep(), subsets=subsets, rng=0, options=end)
    free = ksdmin.minimize(deep(), subsets=subsets, rng=0, options={"damping": 0, **end})
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
    problem = problem_of(net(torch.nn.Linear(4, 1)))
    assert not problem.nonlinear
    assert first_step(problem) == pytest.approx(first_step(problem, damping=0))
    assert first_step(problem, damping=1e3) < 0.01


@pytest.mark.parametrize(
    ("model", "size"),
    [
        (net(torch.nn.Linear(4, 1)), 400),
        (net(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)), 20),
    ],
)
def test_a_net_takes_many_rough_steps_where_a_linear_model_takes_exact_ones(model, size):
    problem = problem_of(model)
    res = ksdmin.minimize(problem, subsets=400, rng=0, options={"maxiter": 1})
    assert res.history["size_B"][0] == size


@pytest.mark.parametrize(
    ("layers", "nonlinear"),
    [
        ([torch.nn.Linear(4, 1)], False),
        ([torch.nn.Flatten(), torch.nn.Linear(4, 3, bias=False)], False),
        ([torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)], True),
        ([torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)], True),
        ([torch.nn.Linear(4, 1), torch.nn.Tanh()], True),
    ],
)
def test_what_counts_as_linear(layers, nonlinear):
    X = torch.randn(30, 4, dtype=torch.float64)
    model = net(*layers)
    y = torch.zeros_like(model(X))
    problem = ksdmin.from_torch(model, torch.nn.MSELoss(), (X, y))
    assert problem.nonlinear is nonlinear


def test_functions_of_autograd_tell_whether_they_are_linear():
    import autograd.numpy as anp

    X, y = np.random.default_rng(0).standard_normal((30, 3)), np.zeros(30)
    straight = ksdmin.from_autograd(lambda w, X: X @ w, "squared-error", (X, y), params=np.ones(3))
    bent = ksdmin.from_autograd(
        lambda w, X: anp.tanh(X @ w), "squared-error", (X, y), params=np.ones(3)
    )
    assert (straight.nonlinear, bent.nonlinear) == (False, True)


def test_damping_is_gone_once_the_sets_are_whole():
    """The deterministic method converges."""
    problem = deep(l2=1e-3)
    subsets = ksdmin.Subsets(400, curvature=100, search=100)
    options = {"maxiter": 300, "gtol": 1e-6}
    res = ksdmin.minimize(problem, subsets=subsets, rng=0, options=options)
    assert res.success
    assert res.history["size_B"][-1] == 400
