"""Seeds of problems and of sets of samples."""

import numpy as np
import pytest

from ksdmin._adapters.flat_problem import MAX_SEED, picked_rows, seed_for_set, seed_from_rng


@pytest.mark.parametrize("rng", [0, 5, 2**64 - 1, np.int64(3), np.uint8(7)])
def test_an_integer_is_the_seed_itself(rng):
    assert seed_from_rng(rng) == int(rng)
    assert type(seed_from_rng(rng)) is int


@pytest.mark.parametrize(
    "rng", [None, 2**70, np.random.default_rng(0), np.random.SeedSequence(0), [1, 2]]
)
def test_whatever_else_default_rng_takes(rng):
    seed = seed_from_rng(rng)
    assert 0 <= seed < MAX_SEED
    seed_for_set(seed, slice(None))


def test_a_generator_goes_on():
    rng = np.random.default_rng(0)
    assert seed_from_rng(rng) != seed_from_rng(rng)
    assert seed_from_rng(2**70) == seed_from_rng(2**70)


def test_what_is_no_seed():
    with pytest.raises(ValueError, match="rng=-1: expected a non-negative integer"):
        seed_from_rng(-1)
    with pytest.raises(TypeError):
        seed_from_rng("seed")


def test_every_set_has_its_own():
    sets = [slice(None), np.arange(3), np.arange(4), np.array([0, 2, 1])]
    seeds = [seed_for_set(seed, idx) for seed in (0, 1) for idx in sets]
    assert len(set(seeds)) == 8
    assert seeds[1] == seed_for_set(0, np.arange(3))


def test_every_row_is_as_likely_to_be_picked():
    picks = [picked_rows(10, 4, seed) for seed in range(500)]
    assert all((np.diff(rows) > 0).all() for rows in picks)
    share = np.bincount(np.concatenate(picks), minlength=10) / len(picks)
    assert np.abs(share - 0.4).max() < 0.1
