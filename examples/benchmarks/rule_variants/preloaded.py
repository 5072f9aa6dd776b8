"""What the processes share: problems and data that take long to load, and know nothing of ksdmin.

This module outlives `rewritten.import_again`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_KEPT: dict[tuple[str, str], Any] = {}


def get(collection: str, name: str, make: Callable[[], Any]) -> Any:
    """What `make` returns, made once."""
    if (collection, name) not in _KEPT:
        _KEPT[collection, name] = make()
    return _KEPT[collection, name]
