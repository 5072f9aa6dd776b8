"""A run that is killed at any moment, and started again, ends as if it had never been."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ksdmin
from tests.run import runs
from tests.run.killed import digest

ROOT = Path(__file__).parents[2]
RUNS = ("rosenbrock", "hessian_free", "differences", "samples", "net")


def process(name, path, *at):
    return subprocess.run(
        [sys.executable, "-m", "tests.run.killed", name, path, *at],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )


def killed_and_started_again(name, tmp_path, moments):
    """The digest of the run that was killed at each of the moments, counted from each start."""
    path = tmp_path / "run.ksd"
    for at in moments:
        gone = process(name, path, at)
        if gone.returncode == 0:  # it came to its end before
            return gone.stdout.strip()
        assert gone.returncode == -signal.SIGKILL, gone.stderr
    last = process(name, path)
    assert last.returncode == 0, last.stderr
    return last.stdout.strip()


def test_a_run_that_is_killed(tmp_path):
    """While it evaluates, and while it writes."""
    whole = digest(ksdmin.minimize(**runs.samples()))
    assert killed_and_started_again("samples", tmp_path, ["write:25", "9"]) == whole
    rest = {entry.name for entry in tmp_path.iterdir()} - {"run.ksd"}
    assert not rest, "the next write takes the place of what a killed one left"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_is_killed_at_random_moments(name, seed, tmp_path):
    rng = np.random.default_rng([seed, len(name)])
    whole = digest(ksdmin.minimize(**runs.ALL[name]()))
    moments = [
        f"write:{rng.integers(1, 60)}" if rng.random() < 0.5 else str(rng.integers(1, 60))
        for _ in range(3)
    ]
    assert killed_and_started_again(name, tmp_path, moments) == whole
