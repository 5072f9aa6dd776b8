"""Checks of arguments that the functions of all adapters share."""

from __future__ import annotations

from typing import Any


def refuse(instead: str, **arguments: Any) -> None:
    """Refuse arguments that go with `instead`, where they are given."""
    for name, value in arguments.items():
        if value is not None:
            raise TypeError(f"{name}= goes with {instead}: leave it out")


def check_curvature_of_function(curvature: Any) -> None:
    """Refuse a curvature that a plain function does not have."""
    if curvature not in (None, "hessian") and not callable(curvature):
        raise ValueError(
            f"curvature={curvature!r} needs a model with outputs and a loss, which a plain "
            "function does not have: leave it out, or give loss and data"
        )
