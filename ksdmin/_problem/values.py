"""Values: objects that are never changed, only copied with a change."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


def made(kind: type[T], /, **attributes: Any) -> T:
    """An instance of a frozen dataclass with these attributes, which must be all of its fields.

    The same as calling the class, without the cost of its `__init__`.
    """
    value = object.__new__(kind)
    value.__dict__.update(attributes)
    return value


def changed(value: T, /, **changes: Any) -> T:
    """A copy of `value` with other attributes.

    The same as ``dataclasses.replace`` for a frozen dataclass, but without a call of `__init__`,
    which is most of its cost: a tenth of a step on a cheap function.
    """
    twin = object.__new__(type(value))
    attributes = twin.__dict__
    attributes.update(value.__dict__)
    known = len(attributes)
    attributes.update(changes)
    if len(attributes) > known:
        unknown = changes.keys() - value.__dict__.keys()
        raise TypeError(f"{type(value).__name__} has no {', '.join(sorted(unknown))}")
    return twin
