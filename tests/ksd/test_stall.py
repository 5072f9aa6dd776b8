"""Stall: when a run has stopped making progress."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

import ksdmin
from ksdmin._ksd import presets
from ksdmin._ksd.rules import set_sizes
from tests.linear_models import logistic
from tests.nets import tanh_net


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


M, N, L2, DIGITS = 3000, 6, 1e-3, 1e-4
RNG = np.random.default_rng(0)
X = RNG.standard_normal((M, N)) * np.geomspace(1, 10, N)
Y = np.where(RNG.random(M) < expit(X @ np.ones(N) / 4), 1.0, -1.0)
LOSS = logistic(X, Y, L2)


class Logistic:
    """A mean of losses whose values are exact to `noise`; a finer one may be at hand."""

    subsets = M

    def __init__(self, noise=None, finer=None):
        self.digits, self.finer, self.asked = noise, finer, 0
        self.traits = ksdmin.Traits(noise=noise, has_finer_arithmetic=True)

    def value(self, w, idx):
        value = LOSS["fun"](w, idx)
        return value if self.digits is None else round(value / self.digits) * self.digits

    def value_and_gradient(self, w, idx):
        coarse = 0.0 if self.digits is None else self.digits * np.sin(1e6 * w)
        return self.value(w, idx), LOSS["jac"](w, idx) + coarse

    def curvature(self, w, idx):
        return lambda v: LOSS["hessp"](w, v, idx)

    def in_finer_arithmetic(self):
        self.asked += 1
        return self.finer


def run(problem, **options):
    return ksdmin.minimize(problem, np.zeros(N), rng=0, options={"gtol": 1e-8, **options})


def test_coarse_values_end_in_precision_loss():
    res = run(Logistic(DIGITS))
    assert res.status == ksdmin.Status.PRECISION_LOSS
    assert not res.success


def test_finer_values_lead_to_the_optimum():
    exact = Logistic()
    coarse = Logistic(DIGITS, exact)
    res = run(coarse)
    assert res.success
    assert np.abs(exact.value_and_gradient(res.x, slice(None))[1]).max() <= 1e-8
    assert res.fun == exact.value(res.x, slice(None))  # not one of the coarse values
    assert coarse.asked == 1


def test_steps_that_are_clear_ask_for_nothing():
    problem = Logistic(1e-12, Logistic())
    assert run(problem, gtol=1e-3).success
    assert problem.asked == 0


def net(precision):
    torch = pytest.importorskip("torch")
    inputs, targets = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(Y > 0).long()
    model, loss = tanh_net(N, 4, 2), torch.nn.CrossEntropyLoss()
    return ksdmin.from_torch(model, loss, (inputs, targets), l2=L2, precision=precision)


def test_a_net_converges_though_its_products_are_rough():
    res = ksdmin.minimize(net("bfloat16"), rng=0, options={"gtol": 1e-4})
    assert res.success, res.message


def test_a_first_step_that_is_short_on_purpose_asks_for_nothing():
    problem, asked = net("bfloat16"), []
    problem.in_finer_arithmetic = lambda: asked.append(True)
    ksdmin.minimize(problem, rng=0, options={"maxiter": 1, "damping": 1e6})
    assert not asked


def test_a_net_that_rounding_stops_comes_to_an_end():
    """Its sets grow until they are everything, and do not go on for ever."""
    options = {"gtol": 1e-5, "without": ["finer_arithmetic"]}
    res = ksdmin.minimize(net("bfloat16"), rng=0, options=options)
    assert res.status == ksdmin.Status.PRECISION_LOSS
    assert res.history["size_B"][-1] == M
