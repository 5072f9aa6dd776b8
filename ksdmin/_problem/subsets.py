"""The sets A, B and C that an iteration samples (Algorithm 3, line 3): sizes and draws.

For sums of several means they are drawn from each block of samples by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
from array_api_compat import device, is_array_api_obj

from ksdmin._problem.values import changed

Rows = npt.NDArray[np.int64]

WHOLE = slice(None)
"""The whole set, as an index that copies nothing."""


@dataclass(frozen=True)
class Sets:
    """What one iteration uses: A for the gradient, B for the curvature, C for the search."""

    A: Any
    B: Any
    C: Any

    def all_are(self, idx: Any) -> bool:
        """Whether all three are this object."""
        return self.A is idx and self.B is idx and self.C is idx

    def with_objects_of(self, *known: Any) -> Sets:
        """The same sets; what equals one of `known`, or of each other, becomes that object.

        A run compares sets by identity. So those of a user, and those of a file, pass through
        here: it must not matter which objects a function, or a process, happens to keep.
        """
        A = one_object(self.A, known)
        B = one_object(self.B, (*known, A))
        return Sets(A, B, one_object(self.C, (*known, A, B)))


class Drawn:
    """A set that a function of the iteration has drawn, and can draw again."""

    drawn_in: int | None  # the iteration; None of a part of such a set

    def is_again(self, other: Any) -> bool:
        """Whether another set has the same samples."""
        raise NotImplementedError


@dataclass(frozen=True)
class Sizes:
    """How many samples each set has."""

    # The numbers.
    A: int
    B: int
    C: int
    together: bool = False  # whether all three are one set, which is kept until it grows

    @classmethod
    def one(cls, size: int) -> Sizes:
        """One set of so many samples, for all three."""
        return cls(size, size, size, together=True)


class Stream:
    """The rest of a user's iterable of sets, as a value: taking from it twice gives the same.

    Each stream keeps its first item, once drawn, and the stream after it. A run keeps only the last
    stream, so that used sets are freed.
    """

    def __init__(self, sets: Iterator[Sets], position: int = 0) -> None:
        self._sets, self.position = sets, position  # how many have been taken before
        self._taken: tuple[Sets | None, Stream] | None = None

    def take(self) -> tuple[Sets | None, Stream]:
        """The next sets (None if there are no more), and the stream after them."""
        if self._taken is None:
            self._taken = next(self._sets, None), Stream(self._sets, self.position + 1)
        return self._taken


class Subsets:
    """How each iteration samples the sets A (gradient), B (curvature) and C (search).

    Parameters
    ----------
    n : int, callable or iterable
        The number of samples; or your own sets: ``callable(iteration, rng) -> (A, B, C)`` or an
        iterable of such triples. Your own sets may be any objects (indices, file names, arrays).
        Your functions get them unchanged. A run ends when the iterable is exhausted. Sets
        are the same if they are equal: numbers, text, slices, ranges, arrays, and tuples and lists
        of these. Other objects are the same only if they are identical.
    gradient, curvature, search : float or int, optional
        The sizes of A, B and C: a fraction of the samples (float, at most 1.0) or a count (int).
        By default A is all samples. B and C each begin with 1/K of the samples, but at least 300
        and at most 10 sqrt(n), where K is the dimension of the first Krylov space (1/2 for K = 1,
        so that they can be disjoint). Below 1200 samples they begin with all. All three grow as the
        run needs it. ``ksdmin.PAPER`` always takes all samples for A, and 1/K for B and C. See
        the notes for nets.
    disjoint : bool, optional
        Whether B and C have no sample in common, as long as that is possible (they may grow). A
        may overlap both.
    full : object, optional
        What your functions take for the whole set. It is ``slice(None)`` if `n` is a number. With
        your own sets, ``success``, final values and SciPy's methods need it. Without it, the values
        in the result are those on the last A.

    See Also
    --------
    minimize : takes it as `subsets`; a number is usually enough
    History : has the sizes of the sets for each iteration

    Notes
    -----
    Functions get the samples as their second argument `idx`: ``slice(None)`` for all samples,
    otherwise a sorted array of distinct int64 numbers from 0 to n - 1. Index the data with it, and
    return the mean over these rows.

    If the model is not linear in its parameters (an adapter such as ``from_torch`` finds this out),
    the first sets may be smaller than 300 (but not below 32 with BatchNorm in train mode). From
    2500 samples on, A begins with 25 sqrt(n), and B and C with at most 5 sqrt(n). With Kronecker
    factors, A begins with 5 sqrt(n), and B and C with sqrt(n), from 100 samples on; on a GPU they
    have twice as many, from 400 samples on.

    Examples
    --------
    >>> import numpy as np, ksdmin
    >>> subsets = ksdmin.Subsets(1000, curvature=0.05, search=20)
    >>> sets = subsets.draw(0, np.random.default_rng(0), subsets.sizes(parts=20))
    >>> len(sets.B), len(sets.C), len(np.intersect1d(sets.B, sets.C))
    (50, 20, 0)
    """

    def __init__(
        self,
        n: int | Callable[..., Any] | Iterable[Any],
        gradient: float | None = None,
        curvature: float | None = None,
        search: float | None = None,
        disjoint: bool = True,
        *,
        full: Any = None,
    ) -> None:
        if getattr(n, "shape", None) == ():  # a number in an array
            n = n.item()  # type: ignore[union-attr]
        self.n = int(n) if _is_count(n) else None
        # Each block is drawn by itself.
        self.block_sizes: tuple[int, ...] = () if self.n is None else (self.n,)
        self.full = WHOLE if full is None and self.n is not None else full
        self.disjoint = disjoint
        self._source = n
        self._requested = {"gradient": gradient, "curvature": curvature, "search": search}
        if self.n is not None:
            if self.n < 1:
                raise ValueError(f"subsets: there must be at least one sample, not {self.n}")
            self.sizes(parts=2)  # fail here, not in the middle of a run
        elif not callable(n) and (not isinstance(n, Iterable) or isinstance(n, (str, bytes))):
            raise TypeError(
                "subsets: expected the number of samples, a ksdmin.Subsets, a callable(iteration, "
                f"rng) -> (A, B, C) or an iterable of such triples, not {type(n).__name__}"
            )
        elif (gradient, curvature, search) != (None, None, None):
            raise ValueError("subsets: sizes go with a number of samples, not with your own sets")

    def __repr__(self) -> str:
        source = "your own sets" if self.n is None else str(self.n)
        asked = [f"{name}={size!r}" for name, size in self._requested.items() if size is not None]
        together = [] if self.disjoint else ["disjoint=False"]
        return f"{type(self).__name__}({', '.join([source, *asked, *together])})"

    def sizes(
        self,
        parts: int,
        fewest: int = 1,
        per_root: int | None = None,
        nonlinear: bool = False,
        roots: int | None = None,
        least: int = 1,
    ) -> Sizes | None:
        """The sizes at the start of a run; None if the user draws the sets.

        By default B and C are a share of 1 / `parts`, or `fewest` samples if that is more; if this
        is more than a quarter, they are everything. With `per_root` they have at most twice that
        many times the root of the number of samples. A is everything. A `nonlinear` model trains
        best with many rough steps: its `fewest` is 1, its B and C have at most `per_root` roots,
        or `roots` if given, and A has `per_root` times as many, if that is at most half of the
        samples. `fewest` is never below `least`.
        """
        if self.n is None:
            return None
        counts = {
            name: None if size is None else self._count(size, name)
            for name, size in self._requested.items()
        }
        asked = sum(counts[name] or 0 for name in ("curvature", "search"))
        room = self.n - asked if self.disjoint else self.n
        share = max(1, min(self.n // max(parts, 2), room))
        fewest = least if nonlinear else max(fewest, least)
        if share < fewest:
            share = min(fewest, room) if 4 * fewest <= self.n else self.n
        in_A = self.n
        if per_root is not None and share < self.n:
            few = max(least, (roots or per_root) * math.isqrt(self.n))
            if not nonlinear:
                share = min(share, 2 * per_root * math.isqrt(self.n))
            elif 2 * per_root * few <= self.n:
                share, in_A = min(share, few), per_root * few
        a = counts["gradient"] or in_A
        b, c = (counts[name] or share for name in ("curvature", "search"))
        least = sum(counts[name] or 1 for name in ("curvature", "search"))
        if self.disjoint and least > self.n > 1:
            raise ValueError(
                f"subsets: disjoint sets of {b} (curvature) and {c} (search) samples cannot be "
                f"drawn from {self.n}: ask for less, or pass disjoint=False"
            )
        a, b, c = (max(size, self.smallest) for size in (a, b, c))
        return Sizes(a, b, c)

    @property
    def smallest(self) -> int:
        """How many samples a set has at least: one of each block."""
        return len(self.block_sizes)

    @property
    def asked(self) -> bool:
        """Whether the user asked for any size."""
        return any(size is not None for size in self._requested.values())

    def _count(self, size: float, name: str) -> int:
        assert self.n is not None
        count = 0
        if _is_count(size):
            count = int(size)
        elif isinstance(size, Real) and 0 < size <= 1 and not isinstance(size, bool):
            count = max(1, round(float(size) * self.n))
        if not 1 <= count <= self.n:
            raise ValueError(
                f"subsets: {name}={size!r} is neither a fraction in (0, 1.0] nor a count from 1 "
                f"to {self.n}"
            )
        if not isinstance(size, float) and count < self.smallest:
            raise ValueError(
                f"subsets: {name}={size!r} samples of {self.smallest} blocks: a set needs at least "
                f"one sample of each block, {self.smallest} in all"
            )
        return max(count, self.smallest)

    def stream(self) -> Stream | None:
        """The user's iterable from its start; None if sets are drawn by number or by a callable."""
        if self.n is not None or callable(self._source):
            return None
        return Stream(_triples(self._source, self.full))  # type: ignore[arg-type]

    def draw(self, iteration: int, rng: np.random.Generator, sizes: Sizes | None) -> Sets:
        """The sets of an iteration, by number or callable."""
        if callable(self._source):
            return _triple(self._source(iteration, rng), self.full)
        assert sizes is not None
        A, B, C = (equal_shares(size, self.block_sizes) for size in (sizes.A, sizes.B, sizes.C))
        of_A = [_chosen(rng, n, a) for n, a in zip(self.block_sizes, A, strict=True)]
        pairs = [self._pair(rng, *sized) for sized in zip(self.block_sizes, B, C, strict=True)]
        of_B, of_C = zip(*pairs, strict=True)
        return Sets(*map(self._joined, (of_A, of_B, of_C)))

    def _pair(self, rng: np.random.Generator, n: int, b: int, c: int) -> Sequence[Rows | range]:
        """B and C in a block of `n` samples: disjoint, if they are to be and both fit."""
        if self.disjoint and b + c <= n:
            both = rng.choice(n, b + c, replace=False)
            return np.sort(both[:b]), np.sort(both[b:])
        return _chosen(rng, n, b), _chosen(rng, n, c)

    def _joined(self, parts: Sequence[Rows | range]) -> Any:
        """The rows of each block as rows of all; the whole set by its name."""
        if sum(map(len, parts)) == self.n:
            return self.full
        ends = np.cumsum(self.block_sizes)
        blocks = zip(parts, self.block_sizes, ends - self.block_sizes, strict=True)
        return np.concatenate(
            [(np.arange(n) if len(part) == n else part) + at for part, n, at in blocks]
        )

    def adopting(self, subsets: Subsets) -> Subsets:
        """The sets that a caller asks for, of the same samples."""
        return subsets

    def everything(self, sizes: Sizes | None) -> bool:
        """Whether all sets of these sizes are the whole set."""
        return sizes is not None and self.n == sizes.A == sizes.B == sizes.C

    def size_of(self, idx: Any) -> int | None:
        """How many samples `idx` names, if that is known."""
        if self.is_full(idx):
            return self.n if self.n is not None else _len(self.full)
        return _len(idx)

    def is_full(self, idx: Any) -> bool:
        """Whether `idx` is the whole set."""
        full = self.full
        return full is not None and same_set(idx, full)


def as_subsets(subsets: Any) -> Subsets:
    """The argument ``subsets=`` as a :class:`Subsets`."""
    return subsets if isinstance(subsets, Subsets) else Subsets(subsets)


def _is_count(size: Any) -> TypeGuard[int]:
    return isinstance(size, Integral) and not isinstance(size, bool)


def _len(idx: Any) -> int | None:
    """The number of samples that indices name; None for an opaque object."""
    if type(idx) is np.ndarray and idx.ndim and idx.dtype.kind != "b":
        return len(idx)  # the usual case
    if isinstance(idx, (list, range)):
        mask = len(idx) > 0 and isinstance(idx[0], bool)
        return sum(idx) if mask else len(idx)
    shape = getattr(idx, "shape", ())
    if shape and str(getattr(idx, "dtype", "")).endswith("bool"):  # a mask, numpy's or torch's
        return int(idx.sum())
    return int(shape[0]) if shape else None


def same_set(idx: Any, other: Any) -> bool:
    """Whether two sets are the same: equal numbers, text or arrays; else the same object."""
    if idx is other:
        return True
    if isinstance(idx, Drawn):
        return idx.drawn_in is not None and idx.is_again(other)
    if type(idx) is not type(other):
        return False
    if isinstance(idx, (tuple, list)):
        return len(idx) == len(other) and all(map(same_set, idx, other))
    if is_array_api_obj(idx):
        alike = (idx.shape, idx.dtype, device(idx)) == (other.shape, other.dtype, device(other))
        return alike and bool((idx == other).all())
    return isinstance(idx, (slice, range, str, int, float)) and bool(idx == other)


def one_object(idx: Any, known: Sequence[Any]) -> Any:
    """`idx`, or the same set among `known`."""
    return next((other for other in known if same_set(idx, other)), idx)


def _triples(source: Iterable[Any], full: Any) -> Iterator[Sets]:
    """The sets that a user's iterable holds."""
    sets = None
    for sets in source:
        yield _triple(sets, full)
    if sets is None and isinstance(source, Iterator):
        raise ValueError(
            f"subsets: the {type(source).__name__} holds no sets, or no more: it can be used once "
            "only; for several runs pass a list or a callable(iteration, rng) -> (A, B, C)"
        )


def _triple(sets: Any, full: Any) -> Sets:
    """The user's sets; index arrays are copied, because the user may fill them again."""
    try:
        A, B, C = sets
    except (TypeError, ValueError):
        raise ValueError(
            f"subsets: expected a triple (A, B, C) for each iteration, got {repr(sets)[:80]}"
        ) from None
    sets = Sets(A, B, C).with_objects_of(full)
    own = {
        id(idx): idx.copy() if isinstance(idx, np.ndarray) and idx is not full else idx
        for idx in (sets.A, sets.B, sets.C)
    }
    return Sets(own[id(sets.A)], own[id(sets.B)], own[id(sets.C)])


class Plain(Subsets):
    """The sets of plain functions; a type of its own, to recognise copies."""


PLAIN = Plain(1)
"""A plain function is a sum of one loss: every set is the whole."""


class StratifiedSubsets(Subsets):
    """Sets over several blocks of samples, one behind the other; each is drawn by itself.

    The mean over each block enters the objective by itself: so each block gets the same number of
    samples, as far as it has them, and never none. (Shares in proportion to the blocks would
    leave a small one with next to nothing.)
    """

    def __init__(self, block_sizes: Sequence[int]) -> None:
        super().__init__(sum(block_sizes))
        self.block_sizes = tuple(block_sizes)

    def adopting(self, subsets: Subsets) -> Subsets:
        """Blocks as these, with the sizes that `subsets` asks for; a user's own sets stay."""
        if subsets.n is None or isinstance(subsets, StratifiedSubsets):
            return subsets
        adopted = changed(
            self,
            full=subsets.full,
            disjoint=subsets.disjoint,
            _requested=subsets._requested,
        )
        adopted.sizes(parts=2)  # an impossible request is refused here, not in mid-run
        return adopted


def equal_shares(size: int, block_sizes: Sequence[int]) -> list[int]:
    """`size` samples divided among blocks: the same number each, as far as a block has them.

    What does not go round falls to the largest blocks.
    """
    shares, rest = [0] * len(block_sizes), min(size, sum(block_sizes))
    order = sorted(range(len(shares)), key=block_sizes.__getitem__)
    for place, block in enumerate(order):
        shares[block] = min(block_sizes[block], rest // (len(order) - place))
        rest -= shares[block]
    return shares


def _chosen(rng: np.random.Generator, n: int, size: int) -> Rows | range:
    return range(n) if size >= n else np.sort(rng.choice(n, size, replace=False))
