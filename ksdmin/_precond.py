"""The diagonal preconditioner D (Algorithm 3, line 5)."""

from __future__ import annotations

from ksdmin._arrays import Array, Space


def preconditioner(
    space: Space, diagonal: Array | None, floor: float, power: float
) -> Array | None:
    """D: `diagonal` to a power, floored to `floor` times its maximum.

    None (the identity) where that is 0.
    """
    if diagonal is None:
        return None
    largest = float(space.xp.max(diagonal))
    if not 0 < largest < float("inf"):
        return None
    D = space.xp.clip(diagonal, floor * largest, largest)
    return D if power == 1 else D**power
