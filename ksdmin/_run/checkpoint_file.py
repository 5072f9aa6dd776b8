"""A file with the state of a run: written whole or not at all, read whole or refused.

A line that names the format, a line of JSON (the header: which run this is), a line with the
SHA-256 of the header and of all that follows, and a zip archive: ``content.json``, and one ``.npy``
file for each array. No pickle: to read a file runs no code of its author.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from array_api_compat import is_numpy_array, is_torch_array

MAGIC = b"ksdmin checkpoint\n"
FORMAT = 1
DIGEST_LENGTH = 65  # 64 hexadecimal digits and the end of the line
MAX_HEADER = 2**16
BLOCK = 2**20


class CheckpointError(ValueError):
    """A file that is no checkpoint, or not one of this run, or damaged."""


def write(path: Path, header: Mapping[str, Any], content: Any) -> None:
    """Write a file: to a temporary one beside it, which then takes its place.

    A run that is killed in between leaves the old file, and a temporary one, which the next
    write replaces.
    """
    temporary = path.with_name(f".{path.name}.ksdmin-tmp")
    try:
        with open(temporary, "wb") as file:
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
    """Which run a file is of; nothing but the first lines is read."""
    with open(path, "rb") as file:
        return _header(file, path)[0]


def read(path: Path) -> tuple[dict[str, Any], Any]:
    """The header and the content, after a look at every byte. Arrays come as `SavedArray`."""
    with open(path, "rb") as file:
        header, line = _header(file, path)
        expected, begins = file.read(DIGEST_LENGTH).strip(), file.tell()
        digest = hashlib.sha256(line)
        while block := file.read(BLOCK):
            digest.update(block)
        if digest.hexdigest().encode() != expected:
            raise CheckpointError(
                f"{path}: the file is damaged or incomplete (its checksum differs). Take another "
                "copy of it, or begin anew; it has been left as it is"
            )
        file.seek(begins)
        with zipfile.ZipFile(file) as archive:
            return header, _loaded(archive)


class SavedArray:
    """An array of a file, and whether it was numpy's: others were of the user's library."""

    def __init__(self, content: np.ndarray[Any, Any], was_numpy: bool) -> None:
        self.content, self.was_numpy = content, was_numpy
        self.shape, self.dtype = content.shape, content.dtype


# Writing


def _write_all(file: IO[bytes], header: Mapping[str, Any], content: Any) -> None:
    line = json.dumps(header).encode() + b"\n"
    file.write(MAGIC + line)
    begins = file.tell()
    file.write(b"0" * (DIGEST_LENGTH - 1) + b"\n")
    hashing = _Hashing(file, line)
    arrays: dict[int, tuple[str, Any]] = {}
    plain = _without_arrays(content, arrays)
    with zipfile.ZipFile(hashing, "w") as archive:
        for name, array in arrays.values():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, _host_copy(array), allow_pickle=False)
        archive.writestr("content.json", json.dumps(plain))
    file.seek(begins)
    file.write(hashing.digest.hexdigest().encode())


class _Hashing:
    """A file that cannot be gone back in: what is written once is hashed once."""

    def __init__(self, file: IO[bytes], begin: bytes) -> None:
        self._file, self.digest = file, hashlib.sha256(begin)

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """Whoever opened it closes it."""


def _without_arrays(value: Any, arrays: dict[int, tuple[str, Any]]) -> Any:
    """`value` for JSON, which has no tuples; what is one array in it has one name."""
    if isinstance(value, Mapping):
        return {key: _without_arrays(part, arrays) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [_without_arrays(part, arrays) for part in value]
        return {"$tuple": parts} if isinstance(value, tuple) else parts
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        name, _ = arrays.setdefault(id(value), (str(len(arrays)), value))
        return {"$array": name, "numpy": is_numpy_array(value)}
    return value


def _host_copy(array: Any) -> np.ndarray[Any, Any]:
    """An array of any library as numpy's, in its own dtype."""
    return np.asarray(array.detach().cpu().numpy() if is_torch_array(array) else array)


def _sync_folder(folder: Path) -> None:
    """Make the new name last, too; where the system has no such thing, there is nothing to do."""
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
            "copy of it, or begin anew; it has been left as it is"
        ) from None
    if version != FORMAT:
        raise CheckpointError(
            f"{path}: the checkpoint has format {version!r}, expected {FORMAT}: it was saved by "
            f"another version of ksdmin ({header.get('ksdmin')}). Load it with that one"
        )
    return header, line


def _loaded(archive: zipfile.ZipFile) -> Any:
    content = json.loads(archive.read("content.json"))
    return _with_arrays(content, archive, {})


def _with_arrays(value: Any, archive: zipfile.ZipFile, known: dict[str, SavedArray]) -> Any:
    """What `_without_arrays` was given; one name is one object."""
    if isinstance(value, list):
        return [_with_arrays(part, archive, known) for part in value]
    if not isinstance(value, dict):
        return value
    if "$tuple" in value:
        return tuple(_with_arrays(part, archive, known) for part in value["$tuple"])
    if "$array" in value:
        name = value["$array"]
        if name not in known:
            with archive.open(f"{name}.npy") as entry:
                content = np.lib.format.read_array(entry, allow_pickle=False)
            known[name] = SavedArray(content, value["numpy"])
        return known[name]
    return {key: _with_arrays(part, archive, known) for key, part in value.items()}
