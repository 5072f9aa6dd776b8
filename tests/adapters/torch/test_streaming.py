"""Data that do not fit into the memory budget are streamed: the same numbers, chunk by chunk."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ksdmin
from ksdmin._adapters.torch.data.samples import Samples
from tests.adapters.torch.dense import assert_same
from tests.adapters.torch.test_data import Pairs, memmap
from tests.nets import tanh_net

N, CHUNK = 103, 10
CPU = torch.device("cpu")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


def mlp(device="cpu", dtype=torch.float64):
    return tanh_net(7, 9, 3).to(device, dtype)


def arrays(n=N):
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(n, 7, generator=generator, dtype=torch.float64)
    return X, torch.randint(0, 3, (n,), generator=generator)


def mapped(path):
    X, y = arrays()
    return memmap(X.numpy(), path / "X"), memmap(y.numpy(), path / "y")


STREAMED = {
    "memmap": mapped,
    "view of a memmap": lambda path: tuple(np.asarray(part)[:] for part in mapped(path)),
    "backwards": lambda path: tuple(part[::-1][::-1] for part in mapped(path)),
    "Dataset": lambda path: DataLoader(Pairs(*arrays()), 8),
    "tensors": lambda path: arrays(),  # streamed to CUDA only
    "one on the device": lambda path: (mapped(path)[0], arrays()[1]),
}


def make(data, device="cpu", dtype=torch.float64, **options):
    options = {"chunk_size": CHUNK, "memory_budget": 1.0} | options
    return ksdmin.from_torch(mlp(device, dtype), nn.CrossEntropyLoss(), data, **options)


SETS = [slice(None), torch.arange(1, N, 2), torch.tensor([5, 3, 77])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", STREAMED)
def test_the_same_numbers_as_in_memory(kind, device, tmp_path):
    X, y = arrays()
    data = STREAMED[kind](tmp_path)
    if kind == "one on the device":
        data = data[0], data[1].to(device)
    found = make(data, device)
    right = make((X.to(device), y.to(device)), device)
    assert found._sums.samples._streamed is not (kind == "tensors" and device == "cpu")
    assert not right._sums.samples._streamed
    assert_same(found, right, 0.0 if device == "cpu" else 1e-14, SETS)


@pytest.mark.parametrize("device", DEVICES)
def test_dtypes(device, tmp_path):
    """Wider numbers are narrowed, narrower ones widened; integers stay what they are."""
    X, y = arrays()
    for given in (np.float16, np.float32, np.float64):
        folder = tmp_path / given.__name__
        folder.mkdir()
        data = memmap(X.numpy().astype(given), folder / "X"), y
        found = make(data, device, torch.float32)
        right = make((torch.tensor(data[0], device=device), y.to(device)), device, torch.float32)
        assert_same(found, right, sets=SETS)


@pytest.fixture(autouse=True)
def older_threads(monkeypatch):
    """Those of problems that other tests keep."""
    monkeypatch.setattr(f"{__name__}.OLDER", set(threading.enumerate()))


OLDER: set[threading.Thread] = set()


def threads():
    named = [t for t in threading.enumerate() if t.name.startswith("ksdmin-prefetch")]
    return [t for t in named if t not in OLDER]


def assert_no_threads():
    gc.collect()
    deadline = time.monotonic() + 10
    while threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not threads()


class Failing(TensorDataset):
    broken = False

    def __getitem__(self, i):
        if Failing.broken and i == 57:
            raise OSError("sample 57 cannot be read")
        return super().__getitem__(i)


class BrokenArray(np.memmap):
    broken = False

    def __getitem__(self, rows):
        if BrokenArray.broken:
            raise OSError("sample 57 cannot be read")
        return super().__getitem__(rows)


@pytest.mark.parametrize("kind", ["Dataset", "memmap"])
def test_an_exception_reaches_the_caller(kind, tmp_path, monkeypatch):
    X, y = arrays()
    data = DataLoader(Failing(X, y), 8)
    if kind == "memmap":
        data = memmap(X.numpy(), tmp_path / "X").view(BrokenArray), y
    problem = make(data)
    before = problem.value(problem.x0)
    for broken in (Failing, BrokenArray):
        monkeypatch.setattr(broken, "broken", True)
    for _ in range(2):
        with pytest.raises(OSError, match="sample 57 cannot be read"):
            problem.value(problem.x0)
    for broken in (Failing, BrokenArray):
        monkeypatch.setattr(broken, "broken", False)
    assert problem.value(problem.x0) == before
    del problem
    assert_no_threads()


@pytest.mark.parametrize("kind", ["memmap", "Dataset"])
def test_an_iteration_that_is_given_up(kind, tmp_path):
    samples = Samples(STREAMED[kind](tmp_path), CPU, torch.float64, memory_budget=1.0)
    for _ in range(3):
        chunks = samples.chunks(slice(None), 2)
        first = next(chunks)
        chunks.close()
    whole = torch.cat([chunk[0] for chunk in samples.chunks(slice(None), 2)])
    assert torch.equal(whole, arrays()[0])
    assert torch.equal(first[0], whole[:2])
    assert len(threads()) <= 1
    del samples, chunks
    assert_no_threads()


def test_a_copy_has_a_thread_of_its_own(tmp_path):
    for data in (mapped(tmp_path), DataLoader(Pairs(*arrays()), 8)):
        problem = make(data)
        value = problem.value(problem.x0)
        for twin in (copy.deepcopy(problem), pickle.loads(pickle.dumps(problem))):
            assert twin.value(twin.x0) == value


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_in_a_forked_process(tmp_path):
    """It has no thread but its own."""
    samples = Samples(mapped(tmp_path), CPU, torch.float64, memory_budget=1.0)
    total = sum(len(chunk[2]) for chunk in samples.chunks(slice(None), 9))
    child = os.fork()
    if child == 0:
        found = sum(len(chunk[2]) for chunk in samples.chunks(slice(None), 9))
        os._exit(0 if found == total == N else 1)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.01)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert done
    assert os.waitstatus_to_exitcode(status) == 0


def test_sets_are_kept_within_a_run_only(tmp_path):
    """Where the file changes between two calls, both see it."""
    X = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float64, (N, 7))
    X[:] = arrays()[0].numpy()
    problem = make((X, arrays()[1]), memory_budget=4000.0)
    some = torch.arange(20)
    before = problem.value(problem.x0, some)
    copy = problem.counting(problem._counts)
    assert copy.value(problem.x0, some) == before
    assert problem._sums.samples._kept._sets
    X *= 2
    assert copy.value(problem.x0, some) == before  # one run, one objective
    assert problem.value(problem.x0, some) != before


ENDS = """
import sys, torch, ksdmin
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tests.adapters.torch.test_data import Pairs

X, y = torch.randn(40, 3), torch.randint(0, 3, (40,))
loader = DataLoader(Pairs(X, y), 8, num_workers=1)
net, loss = nn.Linear(3, 3), nn.CrossEntropyLoss()
p = ksdmin.from_torch(net, loss, loader, memory_budget=1.0, chunk_size=8)
print(all(p.value(p.x0) == p.value(p.x0) for _ in range(3)))

class Slow(Dataset):
    begun = False

    def __len__(self):
        return 400

    def __getitem__(self, i):
        if Slow.begun:
            for _ in range(400):
                torch.ones(60, 60).sin_()
        return torch.full((3,), i / 400), torch.ones(1)

class Ends(nn.Linear):
    def forward(self, x):
        if Slow.begun:
            sys.exit(0)  # the next chunks are on their way
        return super().forward(x)

net, loss = Ends(3, 1), nn.MSELoss()
problem = ksdmin.from_torch(net, loss, Slow(), memory_budget=2000, chunk_size=4)
Slow.begun = True
problem.value(problem.x0)
"""


def test_threads_and_workers_that_fetch_samples_let_a_process_end_well():
    """Workers that a thread has forked, too; what goes wrong would be printed."""
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
