"""Data of all kinds, wherever they are kept, in chunks of any size."""

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import ksdmin
from tests.adapters.torch.dense import assert_same, make
from tests.adapters.torch.zoo import ZOO

CHUNK = 7


class Pairs(Dataset):
    """A map-style dataset."""

    def __init__(self, inputs, targets):
        self.inputs, self.targets = inputs, targets

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, i):
        several = isinstance(self.inputs, tuple)
        x = tuple(part[i] for part in self.inputs) if several else self.inputs[i]
        return x, self.targets[i]


def memmap(array, path):
    mapped = np.memmap(path, array.dtype, "w+", shape=array.shape)
    mapped[:] = array
    mapped.flush()
    return np.memmap(path, array.dtype, "r", shape=array.shape)


def test_memory_mapped_data_that_fit(tmp_path):
    case = ZOO["mlp"]()
    X, y = (part.numpy() for part in case.data)
    data = memmap(X, tmp_path / "X"), memmap(y, tmp_path / "y")
    assert_same(ksdmin.from_torch(case.model, case.loss, data), make("mlp"))


def test_several_targets():
    """A callable gets the tuple: here weights of samples beside the targets."""

    def weighted(z, targets):
        y, weight = targets
        return weight * (z - y).square().mean(1)

    case = ZOO["mlp"]()
    X, y = case.data
    data = X, (y, torch.full((len(y),), 3.0))
    problem, right = ksdmin.from_torch(case.model, weighted, data), make("mlp")
    assert problem.value(right.x0) == pytest.approx(3 * right.value(right.x0), rel=1e-14)


class Watched(np.ndarray):
    """An array that notes how many rows are read at once."""

    most = 0

    def __getitem__(self, rows):
        out = np.asarray(super().__getitem__(rows))
        Watched.most = max(Watched.most, out.size)
        return out


def test_no_more_than_a_chunk_is_read_at_once():
    case, Watched.most = ZOO["mlp"](), 0
    X = np.tile(case.data[0].numpy(), (10, 1)).view(Watched)
    data = X, case.data[1].repeat(10, 1)
    problem = ksdmin.from_torch(case.model, case.loss, data, chunk_size=CHUNK)
    ksdmin.minimize(problem, options={"maxiter": 2})
    assert Watched.most == CHUNK * 3


@pytest.mark.filterwarnings("ignore:.*no parameter changes it")
def test_losses_are_added_in_double_precision():
    """In float32, 2^24 + 1 is 2^24."""

    def losses(z, y):
        return z[:, 0] * 0 + y

    y = torch.ones(1001)
    y[0] = 2**24
    for chunk in (10, 2000):
        problem = ksdmin.from_torch(
            nn.Linear(2, 1), losses, (torch.zeros(1001, 2), y), chunk_size=chunk
        )
        assert problem.value(problem.x0) * 1001 == pytest.approx(2**24 + 1000, rel=1e-12)
        value = problem.value_and_gradient(problem.x0, diagonal=True)[0]
        assert value == problem.value(problem.x0)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ((torch.ones(3, 3), torch.ones(4, 2)), ValueError, r"differ in length: \[3, 4\]"),
        ((torch.ones(0, 3), torch.ones(0, 2)), ValueError, "no samples"),
        (torch.ones(3, 3), TypeError, "not Tensor"),
        ((torch.ones(3, 3),) * 3, TypeError, "not tuple of 3"),
        (TensorDataset(*[torch.ones(3, 3)] * 3), TypeError, "not tuple of 3"),
        (Pairs(["one", "two", "three"], torch.ones(3)), TypeError, "not str"),
        (({"a": torch.ones(()).numpy()}, torch.ones(3)), TypeError, "not one number"),
        ((np.array(["a", "b", "c"]), torch.ones(3)), TypeError, "not an array of <U1"),
    ],
)
def test_what_are_no_data(data, error, message):
    with pytest.raises(error, match=message):
        ksdmin.from_torch(nn.Linear(3, 2), nn.MSELoss(), data)


def test_a_problem_that_is_dropped_frees_its_data():
    X = torch.randn(50, 3, dtype=torch.float64)
    alive = weakref.ref(X)
    problem = ksdmin.from_torch(nn.Linear(3, 1).double(), nn.MSELoss(), (X, X[:, :1]))
    ksdmin.minimize(problem, rng=0, options={"maxiter": 2})
    del problem, X
    gc.collect()
    assert alive() is None
