"""Plain functions on CUDA: captured within a run, and the same as eagerly."""

import numpy as np
import pytest
import torch
from torch import nn

import ksdmin
from ksdmin._adapters.torch import plain_function

pytestmark = pytest.mark.cuda
OPTIONS = {"maxiter": 30, "gtol": 1e-10}


def start(n: int = 8) -> torch.Tensor:
    return torch.linspace(-1, 1, n, dtype=torch.float64, device="cuda")


def rosenbrock(x: torch.Tensor) -> torch.Tensor:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


class Counting:
    """How often a function was called."""

    def __init__(self, fun):
        self.fun, self.calls = fun, 0

    def __call__(self, *args):
        self.calls += 1
        return self.fun(*args)


def both(fun, x0, **kwargs):
    """The results with and without graphs, and how often the function was called."""
    found = []
    for graphs in (None, False):
        counting = Counting(fun)
        problem = ksdmin.from_torch(counting, x0=x0, graphs=graphs, **kwargs)
        found.append((ksdmin.minimize(problem, options=OPTIONS, rng=0), counting.calls))
    return found


def test_the_run_is_the_same_and_calls_the_function_less_often():
    (captured, few), (eager, many) = both(rosenbrock, start(), l2=1e-3)
    assert few < many / 2
    assert captured.nfev == eager.nfev
    assert captured.nit == eager.nit
    np.testing.assert_allclose(captured.x.cpu(), eager.x.cpu(), rtol=1e-9)


def test_a_function_of_samples():
    generator = torch.Generator("cuda").manual_seed(0)
    X = torch.randn(6000, 8, generator=generator, dtype=torch.float64, device="cuda")
    X *= torch.logspace(0, 2, 8, dtype=torch.float64, device="cuda")  # more steps than one or two

    def fun(theta, idx):
        return torch.log1p(torch.exp(-(X[idx] @ theta["w"]))).mean() + theta["w"].square().mean()

    found = both(fun, {"w": start()}, subsets=ksdmin.Subsets(6000, 1.0, 0.2, 0.2))
    (captured, few), (eager, many) = found
    assert few < many
    np.testing.assert_allclose(captured.x.cpu(), eager.x.cpu(), rtol=1e-8, atol=1e-10)


def test_what_the_function_reads_may_change_between_runs():
    goal = {"at": 1.0}
    problem = ksdmin.from_torch(lambda x: (x - goal["at"]).pow(4).sum() + x.sum(), x0=start())
    first = ksdmin.minimize(problem, options=OPTIONS)
    goal["at"] = 5.0
    second = ksdmin.minimize(problem, options=OPTIONS)
    np.testing.assert_allclose((second.x - first.x).cpu(), 4.0, atol=1e-3)


def test_a_function_that_looks_at_values_runs_eagerly(caplog):
    def fun(x):
        return rosenbrock(x) if float(x.detach().square().sum()) < 1e6 else x.square().sum()

    (captured, calls), (eager, others) = both(fun, start())
    assert "it runs eagerly" in caplog.text
    assert captured.fun == pytest.approx(eager.fun)
    assert calls <= others + 2 * plain_function.RUNS_BEFORE_CAPTURE
    torch.rand(1, device="cuda")  # torch's generator has come back from the capture that failed


def test_products_at_two_points_in_turns():
    problem = ksdmin.from_torch(rosenbrock, x0=start()).counting(ksdmin._problem.counting.Counts())
    v = torch.ones_like(problem.x0)
    points = [problem.x0, problem.x0 + 1]
    expected = [problem.curvature(x)(v) for x in points]
    for _ in range(plain_function.RUNS_BEFORE_CAPTURE):
        problem.curvature(points[0])(v)
    products = [problem.curvature(x) for x in points]
    for i in (0, 1, 0, 1):
        torch.testing.assert_close(products[i](v), expected[i], rtol=1e-12, atol=1e-12)
    assert any(key[0] == "hessian" for key in problem._sums._executor._captured)


def test_a_module_whose_forward_pass_returns_the_loss():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double().cuda()
    X = torch.randn(20, 3, dtype=torch.float64, device="cuda")
    (captured, few), (eager, many) = both(lambda m: (m(X) - X[:, :1]).square().mean(), net)
    assert few < many
    assert captured.fun == pytest.approx(eager.fun, rel=1e-6)


def test_minimize_with_a_tensor_on_the_device():
    counting = Counting(rosenbrock)
    res = ksdmin.minimize(counting, start(), options={"gtol": 1e-8})
    assert res.success
    assert counting.calls < res.nfev
