"""What all adapters share: the choice of a preconditioner, a model that has changed."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

import ksdmin
from ksdmin._adapters import curvature
from ksdmin._adapters.flat_problem import picked_rows

X = np.random.default_rng(0).standard_normal((40, 3))
Y = X @ np.array([[1.0], [2.0], [3.0]])
OWN = np.array([1.0, 2.0, 4.0])


def linear(params, inputs):
    return inputs @ params


def from_torch(**options):
    net = nn.Linear(3, 1, bias=False).double()
    data = torch.from_numpy(X), torch.from_numpy(Y)
    return ksdmin.from_torch(net, nn.MSELoss(reduction="sum"), data, **options)


def from_autograd(**options):
    start = np.zeros((3, 1))
    return ksdmin.from_autograd(linear, "squared-error", (X, Y), params=start, **options)


def from_jax(**options):
    start = np.zeros((3, 1), np.float32)
    data = X.astype(np.float32), Y.astype(np.float32)
    return ksdmin.from_jax(linear, "squared-error", data, params=start, **options)


ADAPTERS = pytest.mark.parametrize("adapter", [from_torch, from_autograd, from_jax])


@ADAPTERS
def test_a_missing_package(adapter, monkeypatch):
    library = adapter.__name__.removeprefix("from_")
    for name, module in list(sys.modules.items()):
        if name.startswith("ksdmin._adapters.") and f".{library}" in name:
            package, _, last = name.rpartition(".")
            if package in sys.modules:  # a second import would leave another module there
                monkeypatch.setattr(sys.modules[package], last, module, raising=False)
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError) as caught:
        getattr(ksdmin, f"from_{library}")(lambda x: x @ x, None, None)
    assert str(caught.value) == f"ksdmin.from_{library} needs {library}: pip install {library}"


def same_kind(values, x):
    return x * 0 + (torch.as_tensor(values) if isinstance(x, torch.Tensor) else values)


@ADAPTERS
def test_no_preconditioner_and_a_diagonal_of_ones_own(adapter):
    x = adapter().x0
    given = {"identity": None, "diagonal": same_kind(OWN, x)}
    for name, precond in given.items():
        problem = adapter(precond=precond)
        assert problem.traits.has_diagonal == (precond is not None)
        if precond is not None:
            D = problem.value_and_gradient(x, diagonal=True)[2]
            np.testing.assert_array_equal(D, OWN)
        res = ksdmin.minimize(problem, rng=0)
        assert res.success
        assert res.preconditioner == name


@ADAPTERS
def test_a_diagonal_as_a_function(adapter):
    x, sizes = adapter().x0, set()

    def diagonal(x, idx):
        sizes.add(40 if isinstance(idx, slice) else len(idx))
        return same_kind(OWN, x)

    problem = adapter(precond=diagonal)
    subsets = ksdmin.Subsets(40, gradient=10)
    ksdmin.minimize(problem, x, subsets=subsets, rng=0, options={"maxiter": 3})
    assert sizes <= {10, 40}
    assert 10 in sizes


@ADAPTERS
def test_preconditioners_that_are_refused(adapter):
    """Whether or not a run would need them."""
    for precond in ("diagonals", 3.0):
        message = r"expected .*'diagonal', None, an array or a callable"
        with pytest.raises(ValueError, match=message):
            adapter(precond=precond)
    with pytest.raises(ValueError, match=r"precond returned shape \(2,\), expected \(3,\)"):
        adapter(precond=adapter().x0[:2])


def test_l2_of_a_module():
    net = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)).double()
    data = torch.from_numpy(X), torch.from_numpy(Y)
    plain, group = (
        ksdmin.from_torch(net, nn.MSELoss(), data, l2=l2) for l2 in ({}, {"0": 2.0, "2.bias": 4.0})
    )
    x = plain.x0
    penalty = group.value(x) - plain.value(x)
    assert penalty == pytest.approx(float(x[:8].square().sum() + 2 * x[-1].square()))
    with pytest.raises(ValueError, match="no trainable parameter or module '1'"):
        ksdmin.from_torch(net, nn.MSELoss(), data, l2={"1": 1.0})


def test_lists_are_points():
    problem = ksdmin.from_torch(nn.Linear(2, 1), nn.MSELoss(), (torch.eye(2), torch.ones(2, 1)))
    problem.load([1.0, 1.0, 0.0])
    assert problem.x0.tolist() == [1.0, 1.0, 0.0]
    assert problem.fun([1.0, 1.0, 0.0]) == 0
    assert problem.jac((1.0, 1.0, 0.0)).tolist() == [0.0, 0.0, 0.0]


# Seeds of problems and of sets of samples


@pytest.mark.parametrize("rng", [2**64 - 1, np.uint8(7), 2**70, None, [1, 2]])
def test_whatever_default_rng_takes_is_a_seed(rng):
    net = nn.Sequential(nn.Linear(3, 1), nn.Dropout(0.5))
    data = torch.ones(40, 3), torch.ones(40, 1)
    problem = ksdmin.from_torch(net, nn.MSELoss(), data, rng=rng)
    assert problem.value(problem.x0) == problem.value(problem.x0)


@ADAPTERS
def test_what_is_no_seed(adapter):
    with pytest.raises(TypeError):
        adapter(rng="seed")


def test_every_row_is_as_likely_to_be_picked():
    picks = [picked_rows(10, 4, seed) for seed in range(500)]
    assert all((np.diff(rows) > 0).all() for rows in picks)
    share = np.bincount(np.concatenate(picks), minlength=10) / len(picks)
    assert np.abs(share - 0.4).max() < 0.1


# Curvature providers: their numbers are tested by library


@pytest.mark.parametrize("name", ["softmax_cross_entropy", "binary_cross_entropy"])
def test_large_outputs(backend, name):
    Z = backend.asarray([[1e3, -1e3, 0.0], [0.0, 1e3, 1e3]])
    times = getattr(curvature, name)(Z, Z, backend.asarray([1.0, 1.0]))
    assert np.isfinite(backend.to_numpy(times(Z / 1e3))).all()


def test_outputs_that_are_numbers():
    r = np.array([1.0, 2.0])
    assert curvature.outer_product(r)(np.array([3.0, 1.0])).tolist() == [3.0, 4.0]
