"""A group of one process: the problem that there is without a group, and so the same run."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import ksdmin
from tests.adapters.torch.distributed import cases


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    store = tmp_path_factory.mktemp("one") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


RUNS = {
    "whole": ("net", (1.0, 1.0, 1.0, False)),
    "samples": ("net", (0.6, 0.3, 0.3)),
    "exact space": ("linear", None),
    "weights": ("weighted", (1.0, 0.3, 0.3)),
    "blocks": ("blocks", (1.0, 0.3, 0.3)),
}


@pytest.mark.parametrize("name", RUNS)
def test_its_run_is_the_same_to_the_last_bit_and_sends_nothing(group, name):
    kind, sizes = RUNS[name]
    subsets = cases.subsets_of(cases.problem(kind), sizes)
    alone = cases.run(cases.problem(kind), {"maxiter": 12}, subsets)
    grouped = cases.run(cases.problem(kind, process_group=group), {"maxiter": 12}, subsets)
    np.testing.assert_array_equal(grouped["x"], alone["x"])
    for column in ("value", "nfev", "njev", "nhev"):
        np.testing.assert_array_equal(grouped["history"][column], alone["history"][column])
    assert not grouped["history"]["reductions"].any()
    assert not grouped["history"]["reduced_bytes"].any()


def test_what_several_processes_refuse_is_refused(group):
    X, y = cases.samples()
    net = nn.Sequential(cases.model(), nn.BatchNorm1d(1).double())
    with pytest.raises(ValueError, match=r"BatchNorm1d '1' is in train mode.*process_group="):
        ksdmin.from_torch(net, nn.MSELoss(), (X, y), process_group=group)
    loss, targets = nn.CrossEntropyLoss(ignore_index=1), torch.ones(len(X), dtype=torch.int64)
    with pytest.raises(ValueError, match="every target is ignored"):
        ksdmin.from_torch(cases.model("classes"), loss, (X, targets), process_group=group)
    dataset = TensorDataset(X, y)
    loader = DataLoader(dataset, sampler=DistributedSampler(dataset, 2, 0))
    with pytest.raises(ValueError, match="is for rank 0 of 2, but this process is rank 0 of 1"):
        ksdmin.from_torch(cases.model(), nn.MSELoss(), loader, process_group=group)
