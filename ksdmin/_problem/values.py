"""Values: objects that are never changed, only copied with a change."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")

_new, _put = object.__new__, object.__setattr__  # a step on a cheap function calls them often


def made(kind: type[T], /, **attributes: Any) -> T:
    """An instance of a frozen dataclass with these attributes, which must be all of its fields.

    The same as calling the class, without the cost of its `__init__`.
    """
    value = _new(kind)
    _put(value, "__dict__", attributes)
    return value


def changed(value: T, /, **changes: Any) -> T:
    """A copy of `value` with other attributes.

    The same as ``dataclasses.replace`` for a frozen dataclass, but without a call of `__init__`,
    which is most of its cost: a tenth of a step on a cheap function.
    """
    known = value.__dict__
    attributes = known | changes
    if len(attributes) > len(known):
        unknown = sorted(changes.keys() - known.keys())
        raise TypeError(f"{type(value).__name__} has no {', '.join(unknown)}")
    twin = _new(type(value))
    _put(twin, "__dict__", attributes)
    return twin
