"""Sequences whose targets depend on two symbols far apart (Hochreiter and Schmidhuber 1997).

Nothing but these two matters, so that a net has to keep what it saw up to nine tenths of the
sequence ago. Lengths are fixed, as in Martens and Sutskever (2011) and in Pascanu et al. (2013).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from examples.data.splits import Part, Splits

COUNTS = {"train": 10_000, "test": 10_000, "held_out": 1_000}
SEED = 1997
SYMBOLS, RELEVANT = 6, 2  # of the temporal order: the first two are looked for, the others noise

Problem = Callable[[int, int, np.random.Generator], Part]


def adding(count: int, length: int, rng: np.random.Generator) -> Part:
    """Two numbers are marked, of ten or more in [-1, 1]; the target is 0.5 + their sum / 4.

    The first mark is in the first tenth of the sequence, the other one after it in the first half.
    """
    numbers = rng.uniform(-1, 1, (count, length)).astype(np.float32)
    first, second = (
        rng.integers(length * low // 10, length * high // 10, count)
        for low, high in ((0, 1), (1, 5))
    )
    rows = np.arange(count)
    marks = np.zeros_like(numbers)
    marks[rows, first] = marks[rows, second] = 1
    targets = 0.5 + (numbers[rows, first] + numbers[rows, second]) / 4
    return Part(np.stack([numbers, marks], axis=2), targets[:, None])


def temporal_order(count: int, length: int, rng: np.random.Generator) -> Part:
    """Two of the symbols are X or Y; which, and in which order, is the class: one of four.

    The first is in the second tenth of the sequence, the other one in the sixth.
    """
    symbols = rng.integers(RELEVANT, SYMBOLS, (count, length))
    rows, classes = np.arange(count), np.zeros(count, dtype=np.int64)
    for tenth in (1, 5):
        place = rng.integers(length * tenth // 10, length * (tenth + 1) // 10, count)
        shown = rng.integers(RELEVANT, size=count)
        symbols[rows, place] = shown
        classes = RELEVANT * classes + shown
    return Part(np.eye(SYMBOLS, dtype=np.float32)[symbols], classes)


def load(problem: Problem, length: int, counts: dict[str, int] = COUNTS) -> Splits:
    """Sequences to train on, to test on and to stop by."""
    streams = np.random.SeedSequence(SEED).spawn(len(counts))
    return Splits(
        **{
            name: problem(count, length, np.random.default_rng(stream))
            for (name, count), stream in zip(counts.items(), streams, strict=True)
        }
    )
