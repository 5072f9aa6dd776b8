"""Immutable objects, which are copied with changes."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")

_new, _put = object.__new__, object.__setattr__  # a step on a cheap function calls these often


def made(kind: type[T], /, **attributes: Any) -> T:
    """An instance of a frozen dataclass with these attributes, which must be all of its fields.

    It is the same as calling the class, without the cost of its `__init__`.
    """
    value = _new(kind)
    _put(value, "__dict__", attributes)
    return value


def changed(value: T, /, **changes: Any) -> T:
    """A copy of `value` with other attributes.

    It is the same as ``dataclasses.replace`` for a frozen dataclass, but without the call of
    `__init__`, which is most of the cost: a tenth of a step on a cheap function.
    """
    known = value.__dict__
    attributes = known | changes
    if len(attributes) > len(known):
        unknown = sorted(changes.keys() - known.keys())
        raise TypeError(f"{type(value).__name__} has no {', '.join(unknown)}")
    twin = _new(type(value))
    _put(twin, "__dict__", attributes)
    return twin
