"""Where the user's own line is, for warnings."""

from __future__ import annotations

import sys

BETWEEN = ("ksdmin", "scipy", "torch")  # torch wraps optimizers' steps, SciPy calls its plug-ins


def frames_to_the_user() -> int:
    """How many calls above the caller of this the user's line is: a `stacklevel`."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in BETWEEN:
            break
        level, frame = level + 1, frame.f_back
    return level
