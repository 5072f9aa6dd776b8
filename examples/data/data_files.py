"""Where data files are: the folder KSDMIN_DATA, or pooch's cache, filled from public addresses."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


class MissingData(FileNotFoundError):
    """A data file is not there; the message says where to get it and how to point to it."""


@dataclass(frozen=True)
class Source:
    """A data file.

    Attributes
    ----------
    path : str
        Within the data folder.
    url : str or None
        Where it is public; None where it is not as this one file.
    checksum : str or None
        As pooch takes it, "md5:..." or "sha256:...".
    advice : str
        How to get it where there is no address.
    """

    path: str
    url: str | None = None
    checksum: str | None = None
    advice: str = ""


def locate(source: Source) -> Path:
    """The file, from KSDMIN_DATA where that is set, otherwise fetched once and checked."""
    folder = os.environ.get("KSDMIN_DATA")
    if folder is not None:
        path = Path(folder) / source.path
        if path.is_file():
            return path
        raise MissingData(
            f"{path} is not there: KSDMIN_DATA={folder} must hold {source.path}. {_origin(source)}"
        )
    if source.url is None:
        raise MissingData(
            f"{source.path} has no public address of its own: set KSDMIN_DATA to a folder that "
            f"holds it. {_origin(source)}"
        )
    return _fetch(source)


def _fetch(source: Source) -> Path:
    try:
        import pooch
    except ImportError:
        raise MissingData(
            f"fetching {source.path} needs pooch (pip install pooch); or set "
            f"KSDMIN_DATA to a folder that holds it. {_origin(source)}"
        ) from None
    target = pooch.os_cache("ksdmin") / source.path
    found = pooch.retrieve(
        source.url, known_hash=source.checksum, fname=target.name, path=target.parent
    )
    return Path(found)


def _origin(source: Source) -> str:
    return source.advice if source.url is None else f"It is public at {source.url}"
