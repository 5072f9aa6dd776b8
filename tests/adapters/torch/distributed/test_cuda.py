"""One rank with nccl: the same run as without a group."""

import os

import pytest
import torch
from torch import nn

import ksdmin

pytestmark = [
    pytest.mark.cuda,
    # Torch says so, once, when a CUDA graph is captured while a message is under way
    pytest.mark.filterwarnings("ignore:Waiting for pending NCCL work"),
]


@pytest.fixture
def group(tmp_path):
    import torch.distributed as dist

    device = torch.device("cuda", torch.cuda.current_device())
    dist.init_process_group(
        "nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1, device_id=device
    )
    yield dist.group.WORLD
    dist.destroy_process_group()


def run(dtype, sizes, **arguments):
    torch.manual_seed(0)
    X = torch.randn(2000, 20, dtype=dtype, device="cuda")
    net = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 5)).to("cuda", dtype)
    problem = ksdmin.from_torch(net, nn.MSELoss(), (X, X[:, :5].sin()), **arguments)
    options = {"maxiter": 12}
    subsets = ksdmin.Subsets(2000, *sizes)
    return ksdmin.minimize(problem, options=options, subsets=subsets, rng=0)


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("sizes", [(0.5, 0.2, 0.2), (1.0, 1.0, 1.0, False)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_rank_runs_as_without_a_group(group, dtype, sizes, graphs):
    alone = run(dtype, sizes, graphs=graphs)
    grouped = run(dtype, sizes, graphs=graphs, process_group=group)
    assert torch.equal(grouped.x, alone.x)
    assert (grouped.nfev, grouped.nhev, grouped.fun) == (alone.nfev, alone.nhev, alone.fun)
    assert grouped.history[-1].reductions == 0


def test_auto_makes_a_group_for_both_kinds_of_devices(monkeypatch):
    import torch.distributed as dist

    variables = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29517"}
    for name, value in variables.items():
        monkeypatch.setitem(os.environ, name, value)
    run(torch.float32, (0.5, 0.2, 0.2), process_group="auto")
    assert set(dist.get_backend_config().split(",")) == {"cpu:gloo", "cuda:nccl"}
    dist.destroy_process_group()
