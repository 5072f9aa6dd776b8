"""Data and parameters of jax that are spread over four devices: runs as on one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def outcomes():
    settings = {
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # of the compiler, which takes most of the time
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.adapters.functional.sharded_runs"],
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_runs_end_where_that_of_one_device_does(outcomes):
    on_one = {one["sizes"]: one["fun"] for one in outcomes if one["kind"] == "one device"}
    assert on_one.keys() == {"deterministic", "stochastic"}
    for one in outcomes:
        assert one["fun"] == pytest.approx(on_one[one["sizes"]], rel=1e-8), one


def test_arrays_keep_their_sharding(outcomes):
    for one in outcomes:
        assert one["keeps"]
        assert one["devices"] == (4 if "parameters" in one["kind"] else 1)


def test_each_device_computes_with_its_share_of_the_rows(outcomes):
    for one in outcomes:
        assert one["divided"] == (one["kind"] != "one device")
