"""Which processes make a run: the argument process_group, torchrun, wrapped models."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import ksdmin
from tests.adapters.torch.distributed import cases

ROOT = Path(__file__).parents[4]


def made(**arguments):
    usual = {"model": cases.model(), "loss": nn.MSELoss(), "data": cases.samples()}
    return ksdmin.from_torch(**usual | arguments)


@pytest.fixture
def alone(monkeypatch):
    """A process that nothing has started as one of several."""
    for variable in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(variable, raising=False)
    return monkeypatch


@pytest.fixture
def started(alone):
    """One that a launcher has started, but that has no group yet."""
    alone.setenv("RANK", "0")
    alone.setenv("WORLD_SIZE", "1")
    return alone


def test_auto_in_one_process_is_an_ordinary_run(alone):
    auto, plain = made(process_group="auto"), made()
    assert type(auto) is type(plain)
    results = [ksdmin.minimize(one, rng=0, options={"maxiter": 3}) for one in (auto, plain)]
    assert torch.equal(results[0].x, results[1].x)
    assert not torch.distributed.is_initialized()
    ksdmin.from_torch(
        cases.model(),
        residuals=[(lambda m, x: m(x), cases.samples()[0], 1.0)],
        process_group="auto",
    )


def test_a_part_of_the_environment_says_what_to_do(started):
    with pytest.raises(RuntimeError, match=r"no MASTER_ADDR, MASTER_PORT.*Start the script with"):
        made(process_group="auto")


def test_several_processes_without_a_group_are_warned_once(started):
    made()  # of one process: nothing is said
    started.setenv("WORLD_SIZE", "2")
    with pytest.warns(UserWarning, match=r"one of several \(WORLD_SIZE=2\).*process_group") as said:
        made()
    assert said[0].filename == __file__
    made()  # any warning is an error here


AUTO = {"process_group": "auto"}
EPOCHS = {"data": lambda epoch: cases.samples(), **AUTO}
FUNCTION = {"model": lambda x: x @ x, "loss": None, "data": None, "x0": torch.zeros(2).double()}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"process_group": "world"}, ValueError, "process_group='world': expected \"auto\""),
        ({"process_group": 2}, TypeError, r"or a group of torch.distributed.*not int"),
        (FUNCTION | AUTO, TypeError, "process_group"),
        ({"curvature": lambda x, idx: x, **AUTO}, TypeError, "curvature: a function of your own"),
        ({"precond": lambda x, idx: x, **AUTO}, TypeError, "precond: a function of your own sees"),
        (EPOCHS, TypeError, "a function of the epoch cannot be spread"),
    ],
)
def test_refused(arguments, error, message, started):
    with pytest.raises(error, match=message):
        made(**arguments)


def test_data_parallel_is_refused():
    with pytest.raises(TypeError, match=r"DataParallel copies.*pass model\.module"):
        ksdmin.from_torch(nn.DataParallel(cases.model()), nn.MSELoss(), cases.samples())


def test_a_model_in_ddp_is_unwrapped(two):
    zero = cases.problem(l2=0.0)
    expected = zero.value(zero.x0 * 0)
    for value, largest in two(cases.wrapped_model, True):
        assert value == pytest.approx(expected, rel=1e-12)
        assert largest == 0.0  # load() writes into the module


SCRIPT = """
import atexit, os
from pathlib import Path

def at_the_end():  # after the functions that are registered later
    names = [(path / "comm").read_text() for path in Path("/proc/self/task").glob("*")]
    assert not any("gloo" in name for name in names), names
    Path(f"ended{os.environ['RANK']}").touch()

atexit.register(at_the_end)
import torch, ksdmin
from tests.adapters.torch.distributed import cases
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
problem = cases.problem("net", rank, size, process_group="auto")
found = cases.run(problem, {"maxiter": 5}, cases.some_sets())
if rank == 0:
    print("fun", repr(float(found["fun"])))
"""


@pytest.mark.slow
def test_auto_under_torchrun(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    expected = cases.run(cases.problem(), {"maxiter": 5}, cases.some_sets())
    found = float(done.stdout.split("fun")[1])
    assert found == pytest.approx(expected["fun"], rel=1e-8)
    if sys.platform == "linux":  # a thread of gloo that outlives Python aborts the process
        assert sorted(path.name for path in tmp_path.glob("ended*")) == ["ended0", "ended1"]
