"""A file with the state of a run: written whole or not at all, read whole or refused.

A line that names the format, a line of JSON (the header: which run this is), a line with the
SHA-256 of the header and of all that follows, and a zip archive: ``content.json``, and one ``.npy``
file for each array. There is no pickle: reading a file runs no code of its author.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeVar, get_args, get_type_hints

import numpy as np
from array_api_compat import is_numpy_array

from ksdmin._options import NotGiven
from ksdmin._problem.arrays import Small, as_numpy

MAGIC = b"ksdmin checkpoint\n"
FORMAT = 1  # raised when the same state is written differently; changed fields are noticed anyway
DIGEST_LENGTH = 65  # 64 hexadecimal digits and the end of the line
MAX_HEADER = 2**16
BLOCK = 2**20


class CheckpointError(ValueError):
    """A file that is not a checkpoint, or of another run, or damaged."""


def write(path: Path, header: Mapping[str, Any], content: Any) -> None:
    """Write a file: first a temporary one beside it, which then replaces it.

    If the run is killed in between, the old file is still there, and a temporary one, which the
    next write replaces.
    """
    temporary = path.with_name(f".{path.name}.ksdmin-tmp")
    try:
        with open(temporary, "w+b") as file:
            _write_all(file, {"format": FORMAT, **header}, content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def read_header(path: Path) -> dict[str, Any]:
    """Which run a file belongs to; only the first lines are read."""
    with open(path, "rb") as file:
        return _header(file, path)[0]


def read(path: Path) -> tuple[dict[str, Any], Any]:
    """The header and the content, after the checksum was checked. Arrays are `SavedArray`."""
    with open(path, "rb") as file:
        header, line = _header(file, path)
        expected, begins = file.read(DIGEST_LENGTH).strip(), file.tell()
        if _digest(file, line) != expected:
            raise CheckpointError(
                f"{path}: the file is damaged or incomplete (its checksum differs). Take another "
                "copy of it, or start again; it has been left as it is"
            )
        file.seek(begins)
        with zipfile.ZipFile(file) as archive:
            return header, _loaded(archive)


class SavedArray:
    """An array of a file, and whether it was a numpy array or one of the user's library."""

    def __init__(self, content: np.ndarray[Any, Any], was_numpy: bool) -> None:
        self.content, self.was_numpy = content, was_numpy
        self.shape, self.dtype = content.shape, content.dtype


# Writing


def _write_all(file: IO[bytes], header: Mapping[str, Any], content: Any) -> None:
    line = json.dumps(header).encode() + b"\n"
    file.write(MAGIC + line)
    begins = file.tell()
    file.write(b"0" * (DIGEST_LENGTH - 1) + b"\n")
    arrays: dict[int, tuple[str, Any]] = {}
    plain = _without_arrays(content, arrays)
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.values():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, as_numpy(array), allow_pickle=False)
        archive.writestr("content.json", json.dumps(plain))
    file.seek(begins + DIGEST_LENGTH)
    digest = _digest(file, line)
    file.seek(begins)
    file.write(digest)


def _digest(file: IO[bytes], header: bytes) -> bytes:
    """The checksum of the header and of the rest of the file."""
    digest = hashlib.sha256(header)
    while block := file.read(BLOCK):
        digest.update(block)
    return digest.hexdigest().encode()


def _without_arrays(value: Any, arrays: dict[int, tuple[str, Any]]) -> Any:
    """`value` for JSON, which has no tuples; each array has one name, even if it occurs twice."""
    if isinstance(value, Mapping):
        return {key: _without_arrays(part, arrays) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [_without_arrays(part, arrays) for part in value]
        return {"$tuple": parts} if isinstance(value, tuple) else parts
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        name, _ = arrays.setdefault(id(value), (str(len(arrays)), value))
        return {"$array": name, "numpy": is_numpy_array(value)}
    return value


def _sync_folder(folder: Path) -> None:
    """Make the new name durable, too, if the system can do that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# Reading


def _header(file: IO[bytes], path: Path) -> tuple[dict[str, Any], bytes]:
    if file.readline(len(MAGIC)) != MAGIC:
        raise CheckpointError(
            f"{path}: this is not a checkpoint of ksdmin; it has been left as it is"
        )
    line = file.readline(MAX_HEADER)
    try:
        header = json.loads(line)
        version = header["format"]
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(
            f"{path}: the file is damaged or incomplete (its header cannot be read). Take another "
            "copy of it, or start again; it has been left as it is"
        ) from None
    if version != FORMAT:
        raise CheckpointError(
            f"{path}: the checkpoint has format {version!r}, expected {FORMAT}: it was saved by "
            f"another version of ksdmin ({header.get('ksdmin')}). Load it with that one"
        )
    return header, line


def _loaded(archive: zipfile.ZipFile) -> Any:
    """The inverse of `_without_arrays`; one name is one object."""
    known: dict[str, SavedArray] = {}

    def restored(value: dict[str, Any]) -> Any:
        if "$tuple" in value:
            return tuple(value["$tuple"])
        if "$array" not in value:
            return value
        name = value["$array"]
        if name not in known:
            with archive.open(f"{name}.npy") as entry:
                content = np.lib.format.read_array(entry, allow_pickle=False)
            known[name] = SavedArray(content, value["numpy"])
        return known[name]

    return json.loads(archive.read("content.json"), object_hook=restored)


# A state as plain values, and back.
#
# Dictionaries, tuples, numbers, text and arrays stay as they are; arrays are not copied. So numpy,
# torch and Python can all write the result. What cannot be saved, such as the problem, has a name,
# and whoever decodes the state passes it again.


T = TypeVar("T")

OTHER_VERSION = "it was saved by another version of ksdmin. Load it with that one, or start again"
NOTHING_GIVEN: Mapping[str, Any] = {}


def encode(value: Any, given: Mapping[str, Any] = NOTHING_GIVEN) -> dict[str, Any]:
    """A dataclass, with all that it holds, as plain values.

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
    also: type | None = None,
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
    also : type, optional
        Another class that may be made, with those of its type hints: of a method's own state.
    """
    if encoded.get("format") != FORMAT:
        raise ValueError(
            f"the saved state has format {encoded.get('format')!r}, expected {FORMAT}: "
            f"{OTHER_VERSION}"
        )
    made: list[type] = [kind] if also is None else [kind, also]
    classes = {name: found for one in made for name, found in _classes(one).items()}
    value = _Decoder(classes, given, array).value(encoded["value"])
    if not isinstance(value, kind):
        raise ValueError(f"expected a saved {kind.__name__}, not a {type(value).__name__}")
    return value


def _plain(value: Any, names: Mapping[int, str], where: str) -> Any:
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
        parts = (_plain(part, names, f"{where}[{i}]") for i, part in enumerate(value))
        return tuple(parts) if isinstance(value, tuple) else list(parts)
    if isinstance(value, (slice, range)):
        return {type(value).__name__: (value.start, value.stop, value.step)}
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: getattr(value, field.name) for field in fields(value)}
        # An option that was not given is None, so that it is restored as such
        held = {name: None if isinstance(part, NotGiven) else part for name, part in held.items()}
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
    """Restores one state: what was one array becomes one array again."""

    def __init__(
        self, classes: Mapping[str, Any], given: Mapping[str, Any], array: Callable[[Any], Any]
    ) -> None:
        self._classes, self._given, self._array = classes, given, array
        self._known: dict[int, Any] = {}

    def value(self, plain: Any) -> Any:
        """The value that `plain` encodes."""
        if isinstance(plain, Mapping):
            return self._tagged(plain)
        if isinstance(plain, (tuple, list)):
            parts = [self.value(part) for part in plain]
            return tuple(parts) if isinstance(plain, tuple) else parts
        if hasattr(plain, "shape"):
            if id(plain) not in self._known:
                self._known[id(plain)] = self._array(plain)
            return self._known[id(plain)]
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
        make = self._given[tag] if tag == "drawn" else {"slice": slice, "range": range}[tag]
        return make(*content)

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
    """The type hints of a dataclass; cached, since they take longer than encoding a small state."""
    return get_type_hints(kind)


@cache
def _classes(kind: type) -> dict[str, Any]:
    """The dataclasses that one consists of, itself included, by name."""
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
