"""A file with the state of a run: written whole or not at all, read whole or refused.

A line that names the format, a line with the SHA-256 of all that follows, a line of JSON (the
header: which run this is), another one (the state), and the arrays, as NumPy's ``.npy`` has them.
There is no pickle: reading a file runs no code of its author.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar, get_args, get_type_hints

import numpy as np
from array_api_compat import is_numpy_array

from ksdmin._options import NotGiven
from ksdmin._problem.arrays import Small, as_numpy

MAGIC = b"ksdmin checkpoint\n"
FORMAT = 2  # raised when the same state is written differently; changed fields are noticed anyway
DIGEST_LENGTH = 65  # 64 hexadecimal digits and the end of the line
MAX_HEADER = 2**16


class CheckpointError(ValueError):
    """A file that is not a checkpoint, or of another run, or damaged."""


class SavedArray(NamedTuple):
    """An array of a file."""

    content: np.ndarray[Any, Any]
    was_numpy: bool  # rather than an array of the user's library


def write(path: Path, header: Mapping[str, Any], encoded: Mapping[str, Any]) -> None:
    """Write a file: first a temporary one beside it, which then replaces it.

    If the run is killed in between, the old file is still there, and a temporary one, which the
    next write replaces.
    """
    temporary = path.with_name(f".{path.name}.ksdmin-tmp")
    try:
        with open(temporary, "w+b") as file:
            _write_all(file, {"format": FORMAT, **header}, encoded)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    with suppress(OSError):  # make the new name durable, too, if the system can do that
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _write_all(file: IO[bytes], header: Mapping[str, Any], encoded: Mapping[str, Any]) -> None:
    arrays = encoded["arrays"]
    content = {**encoded, "arrays": [is_numpy_array(array) for array in arrays]}
    file.write(MAGIC + b"0" * (DIGEST_LENGTH - 1) + b"\n")
    begins = file.tell()
    for part in (header, content):
        file.write(json.dumps(part).encode() + b"\n")
    for array in arrays:
        np.lib.format.write_array(file, as_numpy(array), allow_pickle=False)
    digest = _digest(file, begins)
    file.seek(len(MAGIC))
    file.write(digest)


def _digest(file: Any, begins: int) -> bytes:
    """The checksum of all from there on."""
    file.seek(begins)
    return hashlib.file_digest(file, "sha256").hexdigest().encode()


def read_header(path: Path) -> dict[str, Any]:
    """Which run a file belongs to; only the first lines are read."""
    with open(path, "rb") as file:
        return _header(file, path)


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and what was encoded, after the checksum was checked. Arrays are `SavedArray`."""
    with open(path, "rb") as file:
        header = _header(file, path)
        follows = file.tell()
        file.seek(len(MAGIC))
        if file.read(DIGEST_LENGTH).strip() != _digest(file, file.tell()):
            raise CheckpointError(_damaged(path, "its checksum differs"))
        file.seek(follows)
        content: dict[str, Any] = json.loads(file.readline())
        content["arrays"] = [
            SavedArray(np.lib.format.read_array(file, allow_pickle=False), was_numpy)
            for was_numpy in content["arrays"]
        ]
        return header, content


def _header(file: IO[bytes], path: Path) -> dict[str, Any]:
    if file.readline(len(MAGIC)) != MAGIC:
        raise CheckpointError(
            f"{path}: this is not a checkpoint of ksdmin; it has been left as it is"
        )
    file.read(DIGEST_LENGTH)
    try:
        header: dict[str, Any] = json.loads(file.readline(MAX_HEADER))
        version = header["format"]
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(_damaged(path, "its header cannot be read")) from None
    if version != FORMAT:
        raise CheckpointError(
            f"{path}: the checkpoint has format {version!r}, expected {FORMAT}: it was saved by "
            f"another version of ksdmin ({header.get('ksdmin')}). Load it with that one"
        )
    return header


def _damaged(path: Path, how: str) -> str:
    return (
        f"{path}: the file is damaged or incomplete ({how}). Take another copy of it, or start "
        "again; it has been left as it is"
    )


# A state as plain values and arrays, and back.
#
# Plain values are what JSON has, and a list of arrays, which are not copied. So a file, torch and
# Python can all hold the result. What is neither is a dictionary with one key, which says what it
# is. What cannot be saved, such as the problem, has a name, and whoever decodes the state passes it
# again.


T = TypeVar("T")

OTHER_VERSION = "it was saved by another version of ksdmin. Load it with that one, or start again"
NOTHING_GIVEN: Mapping[str, Any] = {}


def encode(value: Any, given: Mapping[str, Any] = NOTHING_GIVEN) -> dict[str, Any]:
    """A dataclass, such as a state, with all that it holds, as plain values and arrays.

    `given` are objects within it that are not saved, by the names under which `decode` gets theirs.
    """
    names = {id(thing): name for name, thing in given.items()}
    arrays: dict[int, tuple[int, Any]] = {}
    plain = _plain(value, names, arrays, type(value).__name__)
    return {"format": FORMAT, "value": plain, "arrays": [array for _, array in arrays.values()]}


def _plain(
    value: Any, names: Mapping[int, str], arrays: dict[int, tuple[int, Any]], where: str
) -> Any:
    """`value` as plain values; `where` is its place in the state, for the error message."""
    if id(value) in names:
        return {"given": names[id(value)]}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):  # a number also for subclasses
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, (tuple, list)):
        parts = [_plain(part, names, arrays, f"{where}[{i}]") for i, part in enumerate(value)]
        return {"tuple": parts} if isinstance(value, tuple) else parts
    if isinstance(value, (slice, range)):
        return {type(value).__name__: [value.start, value.stop, value.step]}
    if is_dataclass(value) and not isinstance(value, type):
        hints, plain = _hints(type(value)), {}
        for name in (field.name for field in fields(value)):
            part = getattr(value, name)
            if hints[name] == Small:
                plain[name] = {"host": [list(part.shape), part.reshape(-1).tolist()]}
            else:  # an option that was not given is None, so that it is restored as such
                part = None if isinstance(part, NotGiven) else part
                plain[name] = _plain(part, names, arrays, f"{where}.{name}")
        return {"class": type(value).__name__, "fields": plain}
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return {"array": arrays.setdefault(id(value), (len(arrays), value))[0]}
    if getattr(value, "drawn_in", None) is not None:  # a set that can be drawn again
        return {"drawn": [value.drawn_in]}
    raise TypeError(
        f"{where} is a {type(value).__name__}, which cannot be saved: expected numbers, text, "
        "tuples, lists, slices and arrays"
    )


def decode(
    kind: type[T],
    encoded: Mapping[str, Any],
    given: Mapping[str, Any] = NOTHING_GIVEN,
    array: Callable[[Any], Any] = lambda u: u,
    also: type | None = None,
) -> T:
    """What was encoded: an instance of `kind`.

    Only this class, the one that is `also` allowed (a method's own state), and those named in
    their type hints are made. `given` has what was not saved; "drawn" is a function that draws the
    set of an iteration again. `array` is called with each array, such as to bring it to a device.
    """
    if encoded.get("format") != FORMAT:
        raise ValueError(
            f"the saved state has format {encoded.get('format')!r}, expected {FORMAT}: "
            f"{OTHER_VERSION}"
        )
    kinds: list[Any] = [kind] if also is None else [kind, also]
    classes = {name: known for one in kinds for name, known in _classes(one).items()}
    makers: dict[str, Callable[..., Any]] = {
        "array": [array(u) for u in encoded["arrays"]].__getitem__,  # each is one object again
        "given": given.__getitem__,
        "drawn": lambda content: given["drawn"](*content),
        "host": lambda content: np.array(content[1], dtype=np.float64).reshape(content[0]),
        "tuple": lambda content: tuple(map(restored, content)),
        "slice": lambda content: slice(*content),
        "range": lambda content: range(*content),
    }

    def restored(plain: Any) -> Any:
        if isinstance(plain, list):
            return [restored(part) for part in plain]
        if not isinstance(plain, Mapping):
            return plain
        if "class" not in plain:
            ((tag, content),) = plain.items()
            return makers[tag](content)
        name, parts = plain["class"], plain["fields"]
        if name not in classes:
            raise ValueError(f"the saved state holds a {name!r}, which is unknown: {OTHER_VERSION}")
        differ = parts.keys() ^ {field.name for field in fields(classes[name])}
        if differ:
            raise ValueError(
                f"the saved {name} has other fields than this one ({', '.join(sorted(differ))}): "
                f"{OTHER_VERSION}"
            )
        return classes[name](**{name: restored(part) for name, part in parts.items()})

    value = restored(encoded["value"])
    if not isinstance(value, kind):
        raise ValueError(f"expected a saved {kind.__name__}, not a {type(value).__name__}")
    return value


@cache
def _hints(kind: type) -> dict[str, Any]:
    """The type hints of a dataclass; cached, since they take longer than encoding a small state."""
    return get_type_hints(kind)


@cache
def _classes(kind: Any) -> dict[str, Any]:
    """The dataclasses that a type hint consists of, itself included, by name."""
    found: dict[str, Any] = {}
    waiting = [kind]
    while waiting:
        hint = waiting.pop()
        if not (is_dataclass(hint) and isinstance(hint, type)):
            waiting += get_args(hint)
        elif hint.__name__ not in found:
            found[hint.__name__] = hint
            waiting += _hints(hint).values()
    return found
