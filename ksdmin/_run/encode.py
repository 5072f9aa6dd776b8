"""A run's state as plain values, so that it can be saved: and back.

Dictionaries, tuples, numbers, text and arrays are left; an array stays whatever array it is, and is
not copied. So numpy's, torch's and Python's own ways to write a file all take it. What cannot be
saved, such as the problem, is named: whoever decodes a state brings it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np

from ksdmin._problem.arrays import Small
from ksdmin._problem.subsets import WHOLE

T = TypeVar("T")

FORMAT = 1
"""Raised when the same state is written in another way; other fields are noticed by themselves."""

OTHER_VERSION = "it was saved by another version of ksdmin. Load it with that one, or begin anew"
NOTHING_GIVEN: Mapping[str, Any] = {}


def encode(value: Any, given: Mapping[str, Any] = NOTHING_GIVEN) -> dict[str, Any]:
    """A dataclass, and all that it holds, as plain values.

    Parameters
    ----------
    value : dataclass
        Such as a state.
    given : mapping of str to object
        Objects within it that are not saved, by the names under which `decode` gets theirs.
    """
    names = {id(thing): name for name, thing in given.items()}
    return {"format": FORMAT, "value": _plain(value, names, type(value).__name__)}


def decode(
    kind: type[T],
    encoded: Mapping[str, Any],
    given: Mapping[str, Any] = NOTHING_GIVEN,
    array: Callable[[Any], Any] = lambda u: u,
) -> T:
    """What was encoded.

    Parameters
    ----------
    kind : type
        The class of it. Only this one, and classes named in its type hints, are made.
    encoded : mapping
        From `encode`.
    given : mapping of str to object
        What was not saved.
    array : callable, optional
        Called with each array, such as to bring it to a device.
    """
    if encoded.get("format") != FORMAT:
        raise ValueError(
            f"the saved state has format {encoded.get('format')!r}, expected {FORMAT}: "
            f"{OTHER_VERSION}"
        )
    value = _Decoder(kind, given, array).value(encoded["value"])
    if not isinstance(value, kind):
        raise ValueError(f"expected a saved {kind.__name__}, not a {type(value).__name__}")
    return value


def _plain(value: Any, names: Mapping[int, str], where: str) -> Any:
    """`value` as plain values; `where` it stands in the state is for the error message."""
    if id(value) in names:
        return {"given": names[id(value)]}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):  # of a subclass, the number
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, (tuple, list)):
        parts = (_plain(part, names, f"{where}[{i}]") for i, part in enumerate(value))
        return tuple(parts) if isinstance(value, tuple) else list(parts)
    if isinstance(value, (slice, range)):
        return {type(value).__name__: (value.start, value.stop, value.step)}
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: getattr(value, field.name) for field in fields(value)}
        hints = _hints(type(value))
        plain = {
            name: {"host": (part.shape, part.reshape(-1).tolist())}
            if hints[name] == Small
            else _plain(part, names, f"{where}.{name}")
            for name, part in held.items()
        }
        return {"class": type(value).__name__, "fields": plain}
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return value
    if getattr(value, "drawn_in", None) is not None:  # a set that can be drawn again
        return {"drawn": (value.drawn_in,)}
    raise TypeError(
        f"{where} is a {type(value).__name__}, which cannot be saved: expected numbers, text, "
        "tuples, lists, slices and arrays"
    )


class _Decoder:
    """Makes one state: what was one object in it becomes one object again."""

    def __init__(self, kind: type, given: Mapping[str, Any], array: Callable[[Any], Any]) -> None:
        self._classes, self._given, self._array = _classes(kind), given, array
        # Sets are compared by identity: WHOLE is one object, and so is every other slice.
        self._known: dict[Any, Any] = {("slice", WHOLE.start, WHOLE.stop, WHOLE.step): WHOLE}

    def value(self, plain: Any) -> Any:
        """What `plain` stands for."""
        if isinstance(plain, Mapping):
            return self._tagged(plain)
        if isinstance(plain, (tuple, list)):
            parts = [self.value(part) for part in plain]
            return tuple(parts) if isinstance(plain, tuple) else parts
        if hasattr(plain, "shape"):
            if id(plain) not in self._known:
                self._known[id(plain)] = self._array(plain)
            return self._known[id(plain)]
        if isinstance(plain, str):  # it may name a set
            return self._known.setdefault(("str", plain), plain)
        return plain

    def _tagged(self, plain: Mapping[str, Any]) -> Any:
        if "class" in plain:
            return self._instance(plain["class"], plain["fields"])
        ((tag, content),) = plain.items()
        if tag == "given":
            return self._given[content]
        if tag == "host":
            shape, numbers = content
            return np.array(numbers, dtype=np.float64).reshape(shape)
        key = (tag, *content)
        if key not in self._known:
            make = self._given[tag] if tag == "drawn" else {"slice": slice, "range": range}[tag]
            self._known[key] = make(*content)
        return self._known[key]

    def _instance(self, name: str, plain: Mapping[str, Any]) -> Any:
        kind = self._classes.get(name)
        if kind is None:
            raise ValueError(f"the saved state holds a {name!r}, which is unknown: {OTHER_VERSION}")
        expected = {field.name for field in fields(kind)}
        if plain.keys() != expected:
            differ = ", ".join(sorted(plain.keys() ^ expected))
            raise ValueError(
                f"the saved {name} has other fields than this one ({differ}): {OTHER_VERSION}"
            )
        return kind(**{field: self.value(part) for field, part in plain.items()})


@cache
def _hints(kind: type) -> dict[str, Any]:
    """The type hints of a dataclass, which take longer to find than a small state to encode."""
    return get_type_hints(kind)


@cache
def _classes(kind: type) -> dict[str, Any]:
    """The dataclasses that one is made of, itself among them, by their names."""
    found: dict[str, Any] = {}
    waiting: list[Any] = [kind]
    while waiting:
        hint = waiting.pop()
        if is_dataclass(hint) and isinstance(hint, type):
            if hint.__name__ not in found:
                found[hint.__name__] = hint
                waiting += _hints(hint).values()
        else:
            waiting += get_args(hint)
    return found
