"""The one store of results: runs accumulate, and what is committed is as it writes it."""

import json
from pathlib import Path

import pytest

from examples.benchmarks import nets_of_today
from examples.harness.store import Store

ROOT = Path(__file__).parents[2]
IDENTITIES = {
    "paper/results/*.json": ("config",),
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


def test_what_another_process_has_added_stays(tmp_path):
    first, second = (Store(tmp_path / "runs.json", ("seed",)) for _ in range(2))
    first.add({"seed": 0})
    second.add({"seed": 1})
    assert [run["seed"] for run in second.runs] == [0, 1]


@pytest.mark.parametrize("name", ["runs.json", "runs.json.gz"])
def test_a_head_and_rows_without_names(name, tmp_path):
    store = Store(tmp_path / name, ("problem",))
    runs = [{"problem": "a", "f": 1.5}, {"problem": "b", "f": None}]
    store.replace(runs, {"tag": "ksd", "columns": ("problem", "f")})
    again = Store(tmp_path / name, ("problem",))
    assert again.runs == store.runs == runs
    assert again.head == {"tag": "ksd", "columns": ["problem", "f"]}
    again.replace(runs[:1], {})
    assert (again.runs, again.head) == (runs[:1], {})


def test_identities_may_be_objects_with_tuples_in_them(tmp_path):
    store = Store(tmp_path / "runs.json", ("config",))
    store.add({"config": {"row": "curves", "hidden": (4, 2)}})
    assert store.find(config={"hidden": (4, 2), "row": "curves"}) == store.runs[0]


@pytest.mark.parametrize("pattern", IDENTITIES)
def test_committed_results_are_as_the_store_writes_them(pattern, tmp_path):
    committed = list((ROOT / "examples").glob(pattern))
    assert committed
    for path in committed:
        store = Store(path, IDENTITIES[pattern])
        copy = tmp_path / path.name
        Store(copy, IDENTITIES[pattern]).replace(store.runs, store.head)
        assert copy.read_text() == path.read_text()
