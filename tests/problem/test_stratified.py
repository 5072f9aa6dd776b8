"""Sets that are drawn from each block of samples by itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ksdmin
from ksdmin._problem.subsets import Sizes, StratifiedSubsets, equal_shares

BLOCKS = st.lists(st.integers(1, 60), min_size=1, max_size=6)


@st.composite
def requests(draw):
    """Blocks, and sizes of A, B and C that have room for each block."""
    blocks = draw(BLOCKS)
    size = st.integers(len(blocks), sum(blocks))
    return blocks, Sizes(draw(size), draw(size), draw(size)), draw(st.integers(0, 5))


def rows(idx, n):
    return np.arange(n)[idx]


def in_blocks(idx, blocks):
    ends = np.cumsum(blocks)
    return [idx[(idx >= end - size) & (idx < end)] for end, size in zip(ends, blocks, strict=True)]


@given(requests())
def test_sizes_are_exact_and_every_block_is_there(request):
    blocks, sizes, seed = request
    subsets = StratifiedSubsets(blocks)
    sets = subsets.draw(0, np.random.default_rng(seed), sizes)
    for idx, size in zip((sets.A, sets.B, sets.C), (sizes.A, sizes.B, sizes.C), strict=True):
        assert subsets.is_full(idx) == (size == sum(blocks))
        idx = rows(idx, sum(blocks))
        assert len(idx) == size
        assert (np.diff(idx) > 0).all()
        parts = in_blocks(idx, blocks)
        assert [len(part) for part in parts] == equal_shares(size, blocks)
        assert all(len(part) for part in parts)


@given(requests())
def test_B_and_C_are_disjoint_in_the_blocks_that_hold_both(request):
    blocks, sizes, seed = request
    sets = StratifiedSubsets(blocks).draw(0, np.random.default_rng(seed), sizes)
    n = sum(blocks)
    for b, c, size in zip(
        in_blocks(rows(sets.B, n), blocks), in_blocks(rows(sets.C, n), blocks), blocks, strict=True
    ):
        if len(b) + len(c) <= size:
            assert not np.intersect1d(b, c).size


def test_a_requests_sizes_are_adopted():
    own = StratifiedSubsets([100, 10])
    adopted = own.adopting(ksdmin.Subsets(110, 1.0, 0.2, 0.2, disjoint=False))
    assert isinstance(adopted, StratifiedSubsets)
    assert not adopted.disjoint
    assert adopted.sizes(parts=20) == Sizes(110, 22, 22)
    assert own.disjoint
    users = ksdmin.Subsets(lambda iteration, rng: (0, 1, 2))
    assert own.adopting(users) is users


def test_every_set_has_room_for_every_block():
    own = StratifiedSubsets([50, 50, 50])
    assert own.adopting(ksdmin.Subsets(150, curvature=0.01)).sizes(parts=75) == Sizes(150, 3, 3)
    with pytest.raises(ValueError, match="search=2 samples of 3 blocks: a set needs at least one"):
        own.adopting(ksdmin.Subsets(150, search=2))
