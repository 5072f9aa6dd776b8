"""MNIST: the four idx files."""

from __future__ import annotations

import gzip

import numpy as np
import numpy.typing as npt

from examples.data.data_files import Source, locate
from examples.data.splits import Part, Splits, images

HELD_OUT = 5_000
MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
CHECKSUMS = {
    "train-images-idx3": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1": "ec29112dd5afa0611ce80d1b7f02629c",
}
SOURCES = {
    name: Source(
        path=f"mnist/{name}-ubyte.gz", url=f"{MIRROR}{name}-ubyte.gz", checksum=f"md5:{md5}"
    )
    for name, md5 in CHECKSUMS.items()
}


def load_images() -> Splits:
    """The images as their own targets, for the auto-encoder."""
    train, test = images(pixels("train")), images(pixels("t10k"))
    return Splits(train, test, held_out=train[:0]).holding_out(HELD_OUT)


def load_digits() -> Splits:
    """The images with their digits."""
    train, test = (Part(pixels(name), labels(name)) for name in ("train", "t10k"))
    return Splits(train, test, held_out=train[:0]).holding_out(HELD_OUT)


def pixels(name: str) -> npt.NDArray[np.float32]:
    """Images of 784 pixels in [0, 1]."""
    return read(f"{name}-images-idx3", header=16).reshape(-1, 784) / np.float32(255)


def labels(name: str) -> npt.NDArray[np.int64]:
    """Digits."""
    return read(f"{name}-labels-idx1", header=8).astype(np.int64)


def read(name: str, header: int) -> npt.NDArray[np.uint8]:
    """The bytes of an idx file behind its header."""
    with gzip.open(locate(SOURCES[name])) as file:
        return np.frombuffer(file.read(), np.uint8, offset=header)
