"""How a library says that an array does not fit into memory.

Nothing here imports torch or jax: whoever has their errors has done so.
"""

from __future__ import annotations

import sys


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says so: Python's own and numpy's, torch's, or jax's."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.cuda.OutOfMemoryError):
        return True
    # Jax has no class for it, but a code that its message begins with
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and str(error).startswith("RESOURCE_EXHAUSTED")
    )
