"""Saved runs and full memory on a GPU."""

import numpy as np
import pytest

import ksdmin
from tests.nets import tanh_net

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.cuda


def problem(device, rows=2000, width=20, **kwargs):
    X = torch.as_tensor(np.random.default_rng(0).standard_normal((rows, 8)), dtype=torch.float32)
    model = tanh_net(8, width, 1)
    data = X.to(device), (X[:, :1] * X[:, 1:2]).to(device)
    return ksdmin.from_torch(model.to(device), torch.nn.MSELoss(), data, **kwargs)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_run_of_one_device_goes_on_on_another(device, tmp_path):
    path = tmp_path / "run.ksd"
    other = {"cpu": "cuda", "cuda": "cpu"}[device]
    options = {"maxiter": 3, "checkpoint": path}
    first = ksdmin.minimize(problem(device), rng=0, options=options)
    res = ksdmin.resume(path, problem(other), options={"maxiter": 8})
    assert res.x.device.type == other
    assert res.nit == 8
    assert res.fun < first.fun


def test_a_device_that_is_full():
    large = problem("cuda", rows=200_000, width=500, chunk_size=200_000, graphs=False)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + 1e9) / total)
    try:
        res = ksdmin.minimize(large, rng=0, options={"maxiter": 2})
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert res.nit == 2
    assert large._sums._max_rows < 200_000
    assert np.isfinite(res.fun)
