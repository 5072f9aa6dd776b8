"""Data as people have them: trees, dicts, Datasets and DataLoaders, weights of samples."""

from collections import UserDict, namedtuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

import ksdmin
from tests.adapters.torch.dense import assert_same
from tests.adapters.torch.zoo import Forward

N = 13
CPU, FLOAT64 = torch.device("cpu"), torch.float64
Two = namedtuple("Two", "a b")


class Sum(nn.Module):
    """A net of two inputs, however they are passed."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(3, 4).double(), nn.Linear(2, 4).double()
        self.head = nn.Linear(4, 2).double()

    def forward(self, *inputs, **fields):
        if fields:
            a, b = fields["a"], fields["b"]
        elif isinstance(inputs[0], dict):
            a, b = inputs[0]["a"], inputs[0]["b"]
        else:
            a, b = inputs if len(inputs) == 2 else inputs[0]
        return self.head(torch.tanh(self.first(a) + self.second(b)))


def arrays(n=N):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(n, k, generator=generator, dtype=FLOAT64) for k in (3, 2, 2)]


def problem(data, **options):
    return ksdmin.from_torch(Sum(), nn.MSELoss(), data, **options)


def plain(**options):
    a, b, y = arrays()
    return problem(((a, b), y), **options)


class Items(Dataset):
    """A Dataset of whatever `make` returns for a number."""

    def __init__(self, make, n=N):
        self.make, self.n, self.asked = make, n, []

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        self.asked.append(int(i))
        a, b, y = (part[i] for part in arrays(self.n))
        return self.make(a, b, y)


def pairs(a, b, y):
    return (a, b), y


def fields(a, b, y):
    return {"a": a, "b": b.numpy(), "labels": y}


A, B, Y = arrays()
FORMS = {
    "tuple": ((A, B), Y),
    "list": [[A, B.numpy()], Y],
    "namedtuple": (Two(A, B), Y),
    "dict": ({"a": A, "b": B.numpy()}, Y),
    "mapping": (UserDict(a=A, b=B), Y),
    "fields": {"a": A, "b": B, "y": Y},
    "mapping of fields": UserDict(b=B, targets=Y.numpy(), a=A),
    "Dataset of dicts": Items(fields),
    "Dataset of pairs": Items(pairs),
    "read only": ((np.frombuffer(A.numpy().tobytes()).reshape(A.shape), B), Y),
    "Dataset of namedtuples": Items(lambda a, b, y: (Two(a, b), y)),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form):
    assert_same(problem(FORMS[form]), plain())


LOADERS = {
    "plain": DataLoader(Items(fields), batch_size=4),
    "shuffled": DataLoader(Items(pairs), batch_size=5, shuffle=True),
    "drop_last": DataLoader(Items(fields), batch_size=5, drop_last=True),
    "batch sampler": DataLoader(
        Items(fields), batch_sampler=BatchSampler(RandomSampler(range(N)), 3, False)
    ),
    "distributed": DataLoader(
        Items(pairs), 4, sampler=torch.utils.data.DistributedSampler(Items(pairs), 2, 1)
    ),
    "own collate_fn": DataLoader(
        Items(lambda *parts: parts), 4,
        collate_fn=lambda items: pairs(*default_collate(items)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", LOADERS)
def test_loaders(kind):
    assert_same(problem(LOADERS[kind]), plain())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:.*os.fork.*")
@pytest.mark.parametrize("budget", [None, 1.0], ids=["in memory", "on demand"])
def test_workers(budget):
    """Two processes read the samples, once or whenever they are needed."""
    loader = DataLoader(Items(fields), 4, num_workers=2, persistent_workers=True)
    found = problem(loader, memory_budget=budget, chunk_size=5)
    assert_same(found, plain(chunk_size=5, memory_budget=budget))


@pytest.mark.parametrize(
    "sampler", [SubsetRandomSampler([7, 2, 5]), [7, 2, 5], np.array([7, 2, 5])],
    ids=["SubsetRandomSampler", "list", "array"],
)  # fmt: skip
@pytest.mark.parametrize("budget", [None, 1.0])
def test_a_sampler_that_restricts(sampler, budget):
    loader = DataLoader(Items(pairs), 2, sampler=sampler)
    rows = torch.tensor([7, 2, 5])
    right = problem(((A[rows], B[rows]), Y[rows]), memory_budget=budget)
    found = problem(loader, memory_budget=budget)
    assert found.subsets.n == 3
    assert_same(found, right)


class Mine(Sampler):
    def __iter__(self):
        return iter(range(3))


class Endless(IterableDataset):
    def __iter__(self):
        return iter(())


REFUSED = {
    "weighted": (lambda d: DataLoader(d, 2, sampler=WeightedRandomSampler([1.0] * N, N)),
                 "WeightedRandomSampler .* sample_weight="),
    "with replacement": (lambda d: DataLoader(d, 2, sampler=RandomSampler(d, replacement=True)),
                         "RandomSampler .* changes the objective"),
    "own sampler": (lambda d: DataLoader(d, 2, sampler=Mine()), "sampler Mine .*Subset"),
    "own batches": (lambda d: DataLoader(d, batch_sampler=[[0, 1], [2]]), "batch_sampler list"),
    "no batches": (lambda d: DataLoader(d, batch_size=None), "batch_size=None"),
    "iterable": (lambda d: Endless(), "IterableDataset"),
    "a loader of it": (lambda d: DataLoader(Endless()), "IterableDataset"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_loaders(kind):
    make, message = REFUSED[kind]
    with pytest.raises(TypeError, match=message):
        problem(make(Items(pairs)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"a": A, "b": B}, "'a', 'b' has no target"),
        ({"a": A, "y": Y, "label": Y}, "'a', 'y', 'label' has no single target"),
        ({"labels": Y}, "'labels' has no inputs"),
        (Items(lambda a, b, y: {"a": a}), r"\(inputs, targets\)"),
        (Items(lambda a, b, y: {"a": a, "y": "one"}), "not str"),
    ],
)
def test_dicts_without_targets(data, message):
    with pytest.raises(TypeError, match=message):
        problem(data)


def test_a_collate_fn_that_drops_samples():
    loader = DataLoader(Items(pairs), 4, collate_fn=lambda items: default_collate(items[1:]))
    with pytest.raises(ValueError, match="a batch of 4 samples has 3 rows"):
        problem(loader)


def test_a_dataset_is_read_once():
    data = Items(pairs)
    found = problem(DataLoader(data, 4, shuffle=True))
    assert sorted(data.asked) == list(range(N))
    ksdmin.minimize(found, options={"maxiter": 2})
    assert len(data.asked) == N


def test_the_generators_of_torch_are_left_alone():
    net, loader = Sum(), DataLoader(Items(pairs), 4, shuffle=True)
    torch.manual_seed(5)
    right = torch.rand(3)
    torch.manual_seed(5)
    found = ksdmin.from_torch(net, nn.MSELoss(), loader, memory_budget=1.0, chunk_size=5)
    found.value_and_gradient(found.x0)
    assert torch.equal(torch.rand(3), right)


def mean_of_words(m, words):
    """The mean of a sequence's embeddings; padding has the number 0."""
    mask = (words > 0)[:, :, None]
    return m.head((mask * m.embed(words)).sum(1) / mask.sum(1))


class Sentences(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        return torch.arange(1, 2 + (5 * i) % 7) % 5 + 1, i % 2


def pad(items):
    words, labels = zip(*items, strict=True)
    return nn.utils.rnn.pad_sequence(words, batch_first=True), torch.tensor(labels)


@pytest.mark.parametrize("chunk", [3, 5, 12])
def test_sequences_of_several_lengths(chunk):
    """Batches that are padded to different lengths are made anew for every chunk."""
    net = Forward(mean_of_words, embed=nn.Embedding(6, 3), head=nn.Linear(3, 2)).double()
    loss = nn.CrossEntropyLoss()
    loader = DataLoader(Sentences(), 3, collate_fn=pad)
    found = ksdmin.from_torch(net, loss, loader, chunk_size=chunk)
    right = ksdmin.from_torch(net, loss, pad([Sentences()[i] for i in range(12)]))
    assert not found._sums.samples.one_shape
    assert_same(found, right, 1e-13)


def test_a_loader_of_tensors():
    data = TensorDataset(A, Y)
    loader = DataLoader(data, 4, sampler=SequentialSampler(data))
    net = nn.Linear(3, 2).double()
    found, right = (ksdmin.from_torch(net, nn.MSELoss(), d) for d in (loader, (A, Y)))
    assert_same(found, right)
    assert found._sums.samples._source.pair[0] is A  # nothing is read one by one
    some = DataLoader(data, 4, sampler=[3, 1])
    found, right = (ksdmin.from_torch(net, nn.MSELoss(), d) for d in (some, (A[[3, 1]], Y[[3, 1]])))
    assert_same(found, right)
