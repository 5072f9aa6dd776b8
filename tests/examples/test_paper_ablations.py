"""The choices that the paper leaves open: which there are, runs, and what is made of them."""

import json
from dataclasses import asdict

import pytest

from examples.harness.store import Store
from examples.paper import ablations


def run_of(choice, seed, errors):
    trace = {"seconds": [0.0, 2.0, 4.0], "passes": [0.0, 150.0, 300.0], "train": list(errors)}
    made = {"choice": asdict(choice), "seed": seed, "trace": trace}
    return {**made, "date": "2020-01-01", "commit": "abc", "hardware": "a machine"}


def test_a_choice_is_compared_seed_by_seed_by_passes_and_by_seconds(tmp_path):
    usual = ablations.Choice("paper")
    other = ablations.Choice("paper", "K", "5")
    runs = [
        *(run_of(usual, seed, [8.0, 2.0, 1.0]) for seed in (0, 1)),
        *(run_of(other, seed, [8.0, 2.0 * f, 2.0 * f]) for seed, f in ((0, 1.0), (1, 4.0))),
        run_of(other, 2, [8.0, 8.0, 8.0]),  # nothing to compare it with
    ]
    (effect,) = ablations.effects(runs)
    assert (effect.by_passes, effect.least, effect.most) == pytest.approx((4.0, 2.0, 8.0))
    assert effect.by_seconds == pytest.approx(2.0)
    store = Store(tmp_path / "runs.json", ablations.IDENTITY)
    store.add(*runs)
    assert "| K | 5 | 4.00 [2.00, 8.00] | 2.00 |" in ablations.table(store)
    store.replace(runs, {"shared": True})
    assert "| K | 5 | 4.00 [2.00, 8.00] |  |" in ablations.table(store)
    assert "most is lost with K 5 (4.00 times the error)" in ablations.in_words(runs)


def test_a_run_is_what_is_stored_of_it():
    choice = next(c for c in ablations.choices() if c.preset)
    found = ablations.perform(choice, seed=0, passes=4)
    assert found["choice"] == json.loads(json.dumps(asdict(choice)))
    assert found["trace"]["train"][-1] < found["trace"]["train"][0]


@pytest.mark.slow
@pytest.mark.parametrize("choice", list(ablations.choices()), ids=str)
def test_every_choice_trains(choice):
    trace = ablations.perform(choice, seed=0, passes=20)["trace"]
    assert trace["train"][-1] < 0.5 * trace["train"][0]


@pytest.mark.slow
def test_choices_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    store = Store(tmp_path / "runs.json", ablations.IDENTITY)
    store.add(*(run_of(choice, 0, [8.0, 2.0, 1.0]) for choice in ablations.choices()))
    assert ablations.draw(store, tmp_path / "choices.svg").stat().st_size > 5_000
