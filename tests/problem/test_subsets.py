"""The sets A, B and C: sizes, draws, the user's own."""

import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import ksdmin
from ksdmin import Status, Subsets
from ksdmin._problem.subsets import Sizes, StratifiedSubsets, equal_shares

M = 60
TARGETS = np.random.default_rng(0).standard_normal((M, 4))


def fun(x, idx):
    return 0.5 * float(np.mean(np.sum((x - TARGETS[idx]) ** 2, axis=1)))


def jac(x, idx):
    return x - TARGETS[idx].mean(axis=0)


def run(subsets, fun=fun, jac=jac, **options):
    hessp = lambda x, p, idx: p  # noqa: E731
    return ksdmin.minimize(
        fun, np.zeros(4), jac=jac, hessp=hessp, subsets=subsets, rng=0, options=options
    )


def draw(subsets, seed=0, K=5):
    return subsets.draw(0, np.random.default_rng(seed), subsets.sizes(K))


# Sizes


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ({}, (1000, 50, 50)),
        ({"gradient": 0.25, "curvature": 0.1, "search": 0.03}, (250, 100, 30)),
        ({"gradient": 7, "curvature": 1, "search": 999}, (7, 1, 999)),
        ({"gradient": 1}, (1, 50, 50)),  # a count, where 1.0 is a fraction
        ({"gradient": np.int64(7), "curvature": np.float32(0.5)}, (7, 500, 50)),
        ({"curvature": 1e-9}, (1000, 1, 50)),  # never empty
        ({"curvature": 1.0, "search": 1.0, "disjoint": False}, (1000, 1000, 1000)),
    ],
)
def test_sizes(requested, expected):
    assert Subsets(1000, **requested).sizes(parts=20) == Sizes(*expected)


@pytest.mark.parametrize("size", [0, -1, 61, 0.0, -0.5, 1.5, 60.0, np.nan, True, "half"])
@pytest.mark.parametrize("name", ["gradient", "curvature", "search"])
def test_impossible_size(name, size):
    with pytest.raises(ValueError, match=rf"subsets: {name}=.* fraction .* count from 1 to 60"):
        Subsets(M, **{name: size})


def test_too_much_for_disjoint_sets():
    with pytest.raises(ValueError, match=r"disjoint sets of 36 .* and 30 .* from 60: ask for less"):
        Subsets(M, curvature=0.6, search=0.5)
    with pytest.raises(ValueError, match=r"disjoint sets of 60 .* and 1 .* from 60: ask for less"):
        Subsets(M, curvature=1.0)
    with pytest.raises(ValueError, match=r"disjoint sets of 60 .* and 60 .* from 60: ask for less"):
        Subsets(M, curvature=1.0, search=1.0)
    assert Subsets(M, curvature=0.6, search=0.5, disjoint=False).sizes(20) == Sizes(60, 36, 30)
    assert Subsets(M, curvature=0.5, search=0.5).sizes(20) == Sizes(60, 30, 30)


@pytest.mark.parametrize(
    ("what", "error", "told"),
    [
        *((n, ValueError, "at least one sample") for n in (0, -3)),
        *(
            (what, TypeError, r"subsets: expected .* not (float|NoneType|str|bytes|bool)")
            for what in (2.5, None, "file", b"file", True)
        ),
        *(
            (n, TypeError, r"subsets: expected .* not (float|bool)")
            for n in (np.array(6.0), np.array(True), np.float64(6))
        ),
    ],
)
def test_not_subsets(what, error, told):
    with pytest.raises(error, match=told):
        Subsets(what)


# Draws


def test_every_sample_has_its_turn():
    subsets = Subsets(M, curvature=6, search=6)
    drawn = [draw(subsets, seed) for seed in range(200)]
    for name in "BC":
        counts = np.bincount(np.concatenate([getattr(sets, name) for sets in drawn]), minlength=M)
        assert counts.min() > 5
        assert counts.max() < 50


def test_global_random_state_is_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    ksdmin.minimize(fun, np.zeros(4), jac=jac, subsets=Subsets(M, gradient=0.5))
    assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


# The user's own sets


def test_own_callable_is_handed_iteration_and_generator():
    asked = []

    def sets(iteration, rng):
        asked.append((iteration, rng.random()))
        return slice(None), np.arange(0, 30), np.arange(30, 60)

    run(sets, maxiter=3, gtol=0.0)
    iterations, numbers = zip(*asked, strict=True)
    assert iterations[:3] == (0, 1, 2)
    assert len(set(numbers)) == len(numbers)  # a generator of its own for each iteration
    first = list(asked)
    asked.clear()
    run(sets, maxiter=3, gtol=0.0)
    assert asked == first


def test_without_the_whole_set_there_is_no_success():
    whole = np.arange(M)
    res = run(lambda iteration, rng: (whole, whole, whole), maxiter=5)
    assert not res.success
    assert np.abs(res.jac).max() < 1e-5  # the test would hold
    assert res.fun == pytest.approx(fun(res.x, whole))
    assert run(Subsets(lambda iteration, rng: (whole,) * 3, full=whole)).success


def test_whole_set_is_asked_where_one_part_serves_for_everything():
    part = np.arange(M)
    res = run(Subsets(lambda iteration, rng: (part, part, part), full=slice(None)), maxiter=20)
    assert res.success
    assert res.nit < 5


def curved(x, idx):
    return fun(x, idx) + float(np.sum(x**4)) / 4


def curved_jac(x, idx):
    return jac(x, idx) + x**3


@pytest.mark.parametrize(
    ("sets", "full"),
    [
        (lambda: (slice(None),) * 3, slice(None)),
        (lambda: tuple(slice(None) for _ in range(3)), slice(None)),
        (lambda: tuple(slice(0, M) for _ in range(3)), slice(0, M)),
        (lambda: tuple(range(M) for _ in range(3)), range(M)),
        (lambda: tuple("".join(["a", "ll"]) for _ in range(3)), "all"),
        (lambda: tuple(np.arange(M) for _ in range(3)), np.arange(M)),
        (lambda: tuple(list(range(M)) for _ in range(3)), list(range(M))),
    ],
)
def test_what_equals_the_whole_set_is_the_whole_set(sets, full):
    """Made anew for each iteration, or the same object each time: one run."""

    def rows(function):
        return lambda x, idx: function(x, slice(None) if isinstance(idx, str) else idx)

    given = {"fun": rows(curved), "jac": rows(curved_jac), "gtol": 0.0}
    fresh = run(Subsets(lambda iteration, rng: sets(), full=full), **given)
    shared = run(Subsets(lambda iteration, rng: (full,) * 3, full=full), **given)
    assert fresh.status == shared.status == Status.PRECISION_LOSS
    assert (fresh.nit, fresh.nfev, fresh.njev) == (shared.nit, shared.nfev, shared.njev)
    assert_array_equal(fresh.x, shared.x)


@pytest.mark.parametrize("xp", ["numpy", "torch", "jax.numpy"])
def test_equal_arrays_are_one_set(xp):
    xp = pytest.importorskip(xp)
    whole, part = xp.arange(8), xp.arange(8) // 2
    triples = [(whole, xp.arange(8), part), ((part, "a"), (xp.arange(8) // 2, "a"), (part, "b"))]
    first, rest = Subsets(triples, full=whole).stream().take()
    assert first.A is first.B is whole
    assert first.C is not whole
    second, _ = rest.take()
    assert second.A is second.B
    assert second.C is not second.A


def test_a_set_that_is_drawn_again_is_evaluated_once():
    part = np.arange(M // 2)
    res = run(lambda iteration, rng: (part, part, part), maxiter=5)
    assert res.njev <= res.nit + 1


def test_sets_of_an_iterable_are_freed_once_they_are_used():
    """They may be large."""

    class Batch:
        def __init__(self, rows):
            self.rows = rows

    made, alive = [], []

    def triples():
        for i in range(8):
            alive.append(sum(ref() is not None for ref in made))
            batches = [Batch(np.arange(start + i, M, 7)) for start in range(3)]
            made.extend(weakref.ref(batch) for batch in batches)
            yield tuple(batches)

    functions = [lambda x, batch, f=f: f(x, batch.rows) for f in (fun, jac)]
    res = run(triples(), *functions, gtol=0.0)
    assert res.nit == 8
    assert max(alive) <= 6  # those of the last iteration or two


def test_a_generator_is_used_once():
    half = np.arange(30)
    subsets = Subsets((half, half, half) for _ in range(3))
    assert run(subsets).nit
    told = r"holds no sets, or no more: .* used once .* pass a list or a callable"
    with pytest.raises(ValueError, match=told):
        run(subsets)
    with pytest.raises(ValueError, match=told):
        run(iter([]))


@pytest.mark.parametrize("sets", [1, (1, 2), (1, 2, 3, 4)])
def test_not_a_triple(sets):
    with pytest.raises(ValueError, match=r"expected a triple \(A, B, C\)"):
        run(lambda iteration, rng: sets)


def test_sizes_do_not_go_with_own_sets():
    with pytest.raises(ValueError, match="sizes go with a number of samples"):
        Subsets([(1, 2, 3)], curvature=0.5)
    assert Subsets([(1, 2, 3)]).sizes(20) is None


# What is everything, and how many are there?


def test_size_of():
    subsets, whole, mask = Subsets(M), list(range(7)), np.arange(M) % 3 == 0
    assert subsets.size_of(slice(None)) == M
    assert subsets.size_of(np.arange(7)) == 7
    assert subsets.size_of([]) == 0
    assert subsets.size_of(object()) is None
    assert subsets.size_of("file name") is None
    assert Subsets([], full=whole).size_of(whole) == 7
    # Of a mask it is what it selects.
    assert subsets.size_of(mask) == subsets.size_of(mask.tolist()) == 20
    torch = pytest.importorskip("torch")
    assert subsets.size_of(torch.from_numpy(mask)) == 20
    assert subsets.size_of(torch.arange(7)) == 7


# Functions that do not know of subsets


@pytest.mark.parametrize(
    ("fun", "error"),
    [
        (lambda x: x @ x, TypeError),
        (lambda x, idx: TARGETS[:3][np.arange(M)[idx]].sum(), IndexError),
        (lambda x, idx: {}["key"], KeyError),
    ],
)
def test_an_error_in_a_function_tells_how_it_was_called(fun, error):
    with pytest.raises(TypeError) as caught:
        ksdmin.minimize(curved, np.zeros(4), jac=curved_jac, hessp=lambda x, p: p, subsets=M, rng=0)
    assert "hessp(x, p, idx, *args)" in caught.value.__notes__[0]
    with pytest.raises(error) as caught:
        run(M, fun)
    note = caught.value.__notes__[0]
    assert "fun is called as fun(x, idx, *args)" in note
    assert "idx is slice(None) or a sorted array of int64 rows below the number" in note


def test_other_errors_pass_as_they_are():
    def broken(x, *idx):
        raise kind("mine")

    for kind, subsets in ((ValueError, M), (TypeError, None)):
        with pytest.raises(kind, match=r"^mine$") as caught:
            ksdmin.minimize(broken, np.zeros(4), subsets=subsets)
        assert not hasattr(caught.value, "__notes__")


# Sets that are drawn from each block of samples by itself


BLOCKS = st.lists(st.integers(1, 60), min_size=1, max_size=6)


@st.composite
def requests(draw):
    """Blocks, and sizes of A, B and C that have room for each block."""
    blocks = draw(BLOCKS)
    size = st.integers(len(blocks), sum(blocks))
    return blocks, Sizes(draw(size), draw(size), draw(size)), draw(st.integers(0, 5))


def in_blocks(idx, blocks):
    ends = np.cumsum(blocks)
    return [idx[(idx >= end - size) & (idx < end)] for end, size in zip(ends, blocks, strict=True)]


@given(requests())
def test_every_block_is_there_and_B_and_C_are_disjoint_where_a_block_holds_both(request):
    blocks, sizes, seed = request
    subsets, n = StratifiedSubsets(blocks), sum(blocks)
    sets, parts = subsets.draw(0, np.random.default_rng(seed), sizes), {}
    for name in "ABC":
        idx, size = getattr(sets, name), getattr(sizes, name)
        assert subsets.is_full(idx) == (size == n)
        idx = np.arange(n)[idx]
        assert len(idx) == size
        assert (np.diff(idx) > 0).all()
        parts[name] = in_blocks(idx, blocks)
        assert [len(part) for part in parts[name]] == equal_shares(size, blocks)
        assert all(len(part) for part in parts[name])
    for b, c, size in zip(parts["B"], parts["C"], blocks, strict=True):
        assert len(b) + len(c) > size or not np.intersect1d(b, c).size


def test_a_requests_sizes_are_adopted():
    own = StratifiedSubsets([100, 10])
    adopted = own.adopting(Subsets(110, 1.0, 0.2, 0.2, disjoint=False))
    assert isinstance(adopted, StratifiedSubsets)
    assert not adopted.disjoint
    assert adopted.sizes(parts=20) == Sizes(110, 22, 22)
    assert own.disjoint
    users = Subsets(lambda iteration, rng: (0, 1, 2))
    assert own.adopting(users) is users


def test_every_set_has_room_for_every_block():
    own = StratifiedSubsets([50, 50, 50])
    assert own.adopting(Subsets(150, curvature=0.01)).sizes(parts=75) == Sizes(150, 3, 3)
    with pytest.raises(ValueError, match="search=2 samples of 3 blocks: a set needs at least one"):
        own.adopting(Subsets(150, search=2))
