"""Data in the forms that people have: loaders, datasets, memory maps, weights."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, SubsetRandomSampler

from tests.zoo.registry import Model, entry


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def arrays(n=14):
    return torch.randn(n, 3, dtype=torch.float64), torch.randint(2, (n,))


class Items(Dataset):
    """Samples one by one, as dicts."""

    def __init__(self, X, y):
        self.X, self.y = X.cpu(), y.cpu()

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        return {"input": self.X[i], "label": self.y[i]}


def with_data(make, **options):
    """The net with data in the form that `make(X, y)` gives them."""
    return Model(
        net(),
        nn.CrossEntropyLoss(),
        arrays(),
        given=lambda own: {"loss": own.loss, "data": make(*own.data)},
        options=options,
    )


@entry("torch", pytest.mark.filterwarnings("ignore:.*fork.*"))  # other entries have started jax
def data_loader_with_workers():
    return with_data(lambda X, y: DataLoader(Items(X, y), 4, shuffle=True, num_workers=2))


@entry("torch")
def dataset_of_dicts():
    return with_data(Items)


@entry("torch")
def data_loader_that_drops_the_last():
    return with_data(lambda X, y: DataLoader(Items(X, y), 4, drop_last=True))


@entry("torch")
def data_loader_of_a_subset():
    own = with_data(lambda X, y: DataLoader(Items(*more(X, y)), 4, sampler=first(len(y))))
    return own


def more(X, y):
    """The samples, and some that are not chosen."""
    return torch.cat([X, 0 * X + 7]), torch.cat([y, 0 * y])


def first(n):
    return SubsetRandomSampler(range(n))


@entry("torch")
def numpy_arrays():
    return with_data(lambda X, y: (X.cpu().numpy(), y.cpu().numpy()))


@entry("torch")
def memory_mapped_arrays_beyond_the_budget():
    return with_data(mapped, memory_budget=100.0, chunk_size=4)


def mapped(*arrays):
    """The arrays in files, which the maps keep open after their folder is gone."""
    maps = []
    with tempfile.TemporaryDirectory() as folder:
        for i, array in enumerate(arrays):
            path = Path(folder) / str(i)
            np.save(f"{path}.npy", array.cpu().numpy())
            maps.append(np.load(f"{path}.npy", mmap_mode="r"))
    return tuple(maps)


@entry("torch")
def weights_of_samples():
    w = torch.rand(14, dtype=torch.float64) * torch.tensor([1.0, 0.0, 3.0]).repeat(5)[:14]

    def mean(z, y):
        losses = nn.functional.cross_entropy(z, y, reduction="none")
        return (w.to(z) * losses).sum() / w.sum().to(z)

    return Model(
        net(), nn.CrossEntropyLoss(), arrays(), mean=mean, options={"sample_weight": w.numpy()}
    )
