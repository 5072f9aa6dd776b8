"""What the user gives as ``residuals=``: blocks of residuals, checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from numbers import Real
from typing import Any


@dataclass(frozen=True)
class Block:
    """One entry of ``residuals=``: a function, its samples (None: it takes none), its weight."""

    residuals: Callable[..., Any]
    data: Any
    weight: float


def as_blocks(residuals: Any) -> list[Block]:
    """What the user gave as ``residuals=``: (r, data) or (r, data, weight) for each block."""
    if not isinstance(residuals, Iterable) or isinstance(residuals, (str, bytes)):
        raise TypeError(
            "residuals: expected a list of (r, data) or (r, data, weight), not "
            f"{type(residuals).__name__}"
        )
    blocks = [_as_block(number, entry) for number, entry in enumerate(residuals)]
    if not blocks:
        raise ValueError("residuals: the list is empty; expected (r, data) or (r, data, weight)")
    return blocks


def _as_block(number: int, entry: Any) -> Block:
    if not isinstance(entry, (tuple, list)) or len(entry) not in (2, 3):
        of = f" of {len(entry)}" if isinstance(entry, (tuple, list)) else ""
        raise TypeError(
            f"residuals: block {number} is a {type(entry).__name__}{of}; expected (r, data) or "
            "(r, data, weight), data=None where r takes none"
        )
    r, data, weight = (*entry, 1.0) if len(entry) == 2 else entry
    if not callable(r):
        raise TypeError(
            f"residuals: block {number} begins with a {type(r).__name__}; expected a function that "
            "returns the residuals"
        )
    if not isinstance(weight, Real) or isinstance(weight, bool):
        raise TypeError(f"residuals: the weight of block {number} is {weight!r}, not a number")
    if not 0 < float(weight) < math.inf:
        raise ValueError(
            f"residuals: the weight of block {number} is {weight!r}; expected a positive number"
        )
    return Block(r, data, float(weight))


def check_rows(shape: tuple[int, ...], rows: int | None) -> None:
    """Refuse residuals that are not one row per sample (`rows` None: one vector of them)."""
    if not shape:
        wanted = "a vector (for a single one reshape(1))" if rows is None else "one row per sample"
        raise ValueError(
            f"r returned one number: it must return the residuals themselves, {wanted}; they are "
            "squared and averaged here"
        )
    if rows is not None and shape[0] != rows:
        raise ValueError(
            f"r returned shape {shape} for {rows} samples: it must return one row per sample"
        )
    if 0 in shape:
        raise ValueError(f"r returned no residuals: shape {shape}")


def check_block_curvature(curvature: Any) -> None:
    """Refuse a user's own curvature, of which the terms are not known."""
    if curvature is not None and not isinstance(curvature, str):
        raise TypeError(
            "curvature: with residuals= expected a name, such as 'gauss-newton' or 'hessian', not "
            f"a {type(curvature).__name__}"
        )


@contextmanager
def noting_block(number: int) -> Iterator[None]:
    """Errors within say which block of the residuals they are about."""
    try:
        yield
    except Exception as error:
        with suppress(Exception):  # an exception may refuse it
            error.add_note(f"in block {number} of residuals=")
        raise
