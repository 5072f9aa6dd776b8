"""The store of results, and the recorder that all runs pass through."""

import json
from pathlib import Path

import pytest

from examples.benchmarks import nets_of_today
from examples.harness.store import Store
from examples.paper import seed_series

ROOT = Path(__file__).parents[2]
IDENTITIES = {
    "paper/results/*.json": seed_series.IDENTITY,
    "benchmarks/results/*/optima.json": ("data", "l2"),
    "benchmarks/results/regression/[!o]*.json": ("data", "l2", "seed"),
    "benchmarks/results/losses/[!o]*.json": ("data", "l2", "seed"),
    "benchmarks/results/scipy/*/*.json": ("problem",),
}
if list((ROOT / "examples/benchmarks/results").glob("nets_of_today*.json")):  # once it is measured
    IDENTITIES["benchmarks/results/nets_of_today*.json"] = nets_of_today.IDENTITY


def test_runs_accumulate_and_the_later_one_of_the_same_identity_is_kept(tmp_path):
    path = tmp_path / "results" / "ksd.json"
    store = Store(path, identity=("problem",))
    store.add({"problem": "b", "commit": "1"})
    store.add({"problem": "a", "commit": "1"}, {"problem": "b", "commit": "2"})
    kept = [{"problem": "b", "commit": "2"}, {"problem": "a", "commit": "1"}]
    assert json.loads(path.read_text()) == kept == store.runs == Store(path, ("problem",)).runs
    assert store.find(problem="a") == kept[1]
    assert store.find(problem="c") is None
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("pattern", IDENTITIES)
def test_committed_results_are_as_the_store_writes_them(pattern, tmp_path):
    committed = list((ROOT / "examples").glob(pattern))
    assert committed
    for path in committed:
        store = Store(path, IDENTITIES[pattern])
        copy = tmp_path / path.name
        Store(copy, IDENTITIES[pattern]).replace(store.runs, store.head)
        assert copy.read_text() == path.read_text()
