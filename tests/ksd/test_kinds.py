"""The kinds of step of whole runs: which are taken where, each alone, and how users see them."""

import numpy as np
import pytest
import torch
from scipy.optimize import rosen, rosen_der, rosen_hess

import ksdmin
from ksdmin._ksd import chooser
from ksdmin._options import KINDS


def valley(**given):
    return {"fun": rosen, "x0": np.array([-1.2, 1.0]), "jac": rosen_der, **given}


def saddle():
    """Where the gradient vanishes at x0, and there is a way down."""
    return {
        "fun": lambda x: x[0] ** 2 - x[1] ** 2 + x[1] ** 4,
        "x0": np.zeros(2),
        "jac": lambda x: np.array([2 * x[0], -2 * x[1] + 4 * x[1] ** 3]),
    }


def fit(noise=0.0):
    """A curve by a net; with noise, targets that it cannot fit."""
    torch.manual_seed(0)
    X = torch.linspace(-2, 2, 40).double()[:, None]
    y = torch.sin(2 * X) + noise * torch.randn(40, 1).double()
    layers = torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
    net = torch.nn.Sequential(*layers).double()
    return {"fun": ksdmin.from_torch(net, torch.nn.MSELoss(), (X, y), l2=1e-4 * bool(noise))}


def regression(samples=2000, unknowns=20):
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.standard_normal((samples, unknowns)) * np.geomspace(1, 0.1, unknowns))
    y = torch.tensor(rng.integers(0, 2, samples)).double()[:, None]
    model = torch.nn.Linear(unknowns, 1).double()
    loss = torch.nn.BCEWithLogitsLoss()
    return {"fun": ksdmin.from_torch(model, loss, (X, y), l2=1e-3), "rng": 0}


def sampled_net():
    torch.manual_seed(0)
    X = torch.randn(3000, 4).double()
    layers = torch.nn.Linear(4, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3)
    y = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()
    net = torch.nn.Sequential(*layers).double()
    problem = ksdmin.from_torch(net, torch.nn.CrossEntropyLoss(), (X, y), l2=1e-3)
    return {"fun": problem, "rng": 0, "options": {"maxiter": 20}}


# What a run is made of, and what it is not.
TAKEN = {
    "a valley": (valley, {"krylov", "quasi-newton"}),
    "a valley with its Hessian": (lambda: valley(hess=rosen_hess), {"newton", "quasi-newton"}),
    "a saddle point": (saddle, {"escape"}),
    "a curve that is fitted": (fit, {"gauss-newton"}),
    "a noisy curve": (lambda: fit(0.3), {"gauss-newton", "quasi-newton"}),
    "a regression": (regression, {"newton", "quasi-newton"}),
    "a net on samples": (sampled_net, {"krylov"}),
}


@pytest.mark.parametrize("name", TAKEN)
def test_which_kinds_a_run_takes(name):
    given, expected = TAKEN[name]
    res = ksdmin.minimize(**given())
    assert expected <= set(res.kinds) <= set(KINDS)
    assert sum(res.kinds.values()) == res.nit
    kinds = res.history["kind"].tolist()
    assert kinds[0] == ""
    assert {kind: kinds.count(kind) for kind in res.kinds} == res.kinds


def test_rows_of_a_wide_net_are_dear_in_single_precision():
    """Their products are in float64: 17 steps of other kinds take less time than two of these."""
    torch.manual_seed(0)
    X = torch.randn(300, 40)
    layers = torch.nn.Linear(40, 1000), torch.nn.ReLU(), torch.nn.Linear(1000, 1)
    y = (X[:, :1] * X[:, 1:2] > 0).float()
    problem = ksdmin.from_torch(torch.nn.Sequential(*layers), torch.nn.BCEWithLogitsLoss(), (X, y))
    res = ksdmin.minimize(problem, rng=0, options={"fmin": 1e-2, "maxiter": 60})
    assert res.success
    assert set(res.kinds) == {"krylov", "quasi-newton"}


def test_targets_that_cannot_be_fitted_are_no_trap():
    """The run converges, as it does without any of the kinds."""
    res = ksdmin.minimize(**fit(0.3), options={"maxiter": 1500, "gtol": 1e-6})
    assert res.success


class Adder(torch.nn.Module):
    """A recurrent net, which adds up the first of two inputs."""

    def __init__(self):
        super().__init__()
        self.recurrent = torch.nn.RNN(2, 12, batch_first=True)
        self.readout = torch.nn.Linear(12, 1)

    def forward(self, x):
        return self.readout(self.recurrent(x)[1][0])


def test_a_krylov_step_is_not_taken_where_a_gauss_newton_step_is_far_less_work(monkeypatch):
    """Though the contest has decided for the other kinds."""
    monkeypatch.setattr(chooser, "CHOICES", chooser.CHOICES[1:])
    torch.manual_seed(0)
    X = torch.rand(400, 12, 2)
    problem = ksdmin.from_torch(Adder(), torch.nn.MSELoss(), (X, X[:, :, :1].sum(dim=1)))
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 60})
    assert set(res.kinds) == {"gauss-newton", "quasi-newton"}
    assert res.kinds["quasi-newton"] > res.nit / 2


ALONE = {
    "krylov": valley,
    "quasi-newton": valley,
    "newton": lambda: valley(hess=rosen_hess),
    "gauss-newton": fit,
}


@pytest.mark.parametrize("kind", ALONE)
def test_each_kind_alone(kind):
    """And all of them together need no more than half as much again as the best one."""
    others = [name for name in ALONE if name != kind]
    res = ksdmin.minimize(**ALONE[kind](), options={"without": others, "maxiter": 2000})
    assert res.success
    assert set(res.kinds) == {kind}
    together = ksdmin.minimize(**ALONE[kind](), options={"maxiter": 2000})
    assert together.passes <= 1.5 * res.passes


def test_without_krylov_steps_all_samples_are_taken():
    given = sampled_net()
    res = ksdmin.minimize(given["fun"], options={"without": ["krylov"], "maxiter": 5})
    assert set(res.history["size_A"]) == {3000}


def test_a_refused_kind_is_not_taken_up_by_a_resumed_run(tmp_path):
    given, path = fit(0.3), tmp_path / "run"
    whole = ksdmin.minimize(**given, options={"maxiter": 40})
    ksdmin.minimize(**given, options={"maxiter": 17, "checkpoint": path})
    resumed = ksdmin.resume(path, given["fun"], options={"maxiter": 40})
    assert resumed.kinds == whole.kinds
    assert resumed.history["kind"].tolist() == whole.history["kind"].tolist()
    assert resumed.fun == whole.fun


def test_a_long_run_counts_every_step_though_its_history_is_thinned():
    res = ksdmin.minimize(**valley(), options={"history": 5})
    assert len(res.history) < res.nit
    assert sum(res.kinds.values()) == res.nit


def test_a_run_without_krylov_steps_ends_where_it_cannot_go_on():
    """Its steps have no products, and count for the stall all the same."""
    res = ksdmin.minimize(
        lambda x: 1 + (x @ x) ** 0.75,
        np.ones(3),
        jac=lambda x: 1.5 * x * (x @ x + 1e-300) ** -0.25,
        options={"without": ["krylov"], "gtol": 1e-9, "maxiter": 600},
    )
    assert res.nit < 100
