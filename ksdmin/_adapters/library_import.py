"""Autodiff libraries are imported when an adapter is called, not before."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def adapter(name: str) -> Any:
    """The module that adapts a library, which is imported now."""
    module = "torch.build" if name == "torch" else f"functional.{name}"
    try:
        return import_module(f"ksdmin._adapters.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != name:
            raise
        raise ImportError(f"ksdmin.from_{name} needs {name}: pip install {name}") from error
