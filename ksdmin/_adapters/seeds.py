"""Seeds: one for a problem, and from it one for each set of samples."""

from __future__ import annotations

import hashlib
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from ksdmin._problem.arrays import to_host

MAX_SEED = 2**62  # seeds that are drawn lie below: they fit an int64 with room to count up


def seed_from_rng(rng: Any) -> int:
    """The seed of a problem, from whatever ``numpy.random.default_rng`` takes.

    An integer of at most 64 bits is the seed itself.
    """
    if isinstance(rng, Integral) and int(rng) < 0:
        raise ValueError(f"rng={rng!r}: expected a non-negative integer, a Generator or None")
    if isinstance(rng, Integral) and int(rng) < 2**64:
        return int(rng)
    return draw_seed(rng)


def draw_seed(rng: Any) -> int:
    """A seed drawn from ``numpy.random.default_rng(rng)``."""
    return int(np.random.default_rng(rng).integers(MAX_SEED))


def picked_rows(size: int, count: int, seed: int) -> npt.NDArray[np.int64]:
    """`count` of `size` rows, each as likely as any other, in their order.

    (Every k-th one would miss most of what is periodic in the data.)
    """
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(size, count, replace=False, shuffle=False))


def seed_for_set(seed: int, idx: Any) -> int:
    """A seed that depends on the set of samples.

    So the labels, dropout masks and samples that are drawn for a set are always the same, and those
    of another set are different.
    """
    content = repr(idx).encode() if isinstance(idx, slice) else to_host(idx).tobytes()
    digest = hashlib.blake2b(content, digest_size=6, key=seed.to_bytes(8, "little")).digest()
    return int.from_bytes(digest, "little")
