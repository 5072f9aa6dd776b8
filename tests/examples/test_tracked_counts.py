"""The counts that asv tracks stay where they are: what is far off is a change of behaviour."""

import json
from pathlib import Path

import pytest

from examples.benchmarks.tracked.counts import BY_NAME, Counts
from examples.benchmarks.tracked.runs import passes

ROOT = Path(__file__).parents[2]
# The most passes, a third above those of November 2026: rounding differs between machines.
# The most of L-BFGS-B's, likewise.
BOUNDS = {
    "rosenbrock": (1500, 1.25),
    "rosenbrock_values_only": (1300, 1.25),
    "spread_quadratic": (850, 1.15),
    "logistic_regression": (70, 0.25),
    "exponential_fit": (31, 0.5),
}


def test_every_run_has_a_bound():
    assert set(BOUNDS) == set(Counts.params) == set(BY_NAME)


@pytest.mark.parametrize("name", BOUNDS)
def test_counts_are_within_bounds(name):
    most, most_of_lbfgsb = BOUNDS[name]
    res, other = BY_NAME[name]("ksd"), BY_NAME[name]("L-BFGS-B")
    assert res.success
    assert res.fun <= other.fun + 1e-8
    assert most / 5 < passes(res) <= most  # far fewer: the bound is to be lowered
    assert passes(res) / passes(other) <= most_of_lbfgsb


def test_asv_finds_them():
    config = json.loads((ROOT / "asv.conf.json").read_text())
    assert (ROOT / config["benchmark_dir"] / "counts.py").exists()
    assert Counts().track_ratio_to_lbfgsb("exponential_fit") > 0
