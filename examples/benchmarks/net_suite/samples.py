"""The samples of the nets: images of MNIST, with noise or without, and text.

Drawn with one seed, so that the runs of all seeds have the same ones.
"""

from __future__ import annotations

import string
import sysconfig
from functools import lru_cache
from pathlib import Path

import numpy as np

from examples.data import mnist
from examples.data.splits import Part, Splits

TRAINED, VALIDATED = 20_000, 5_000  # of MNIST's training images: the first ones, the last ones
FEW = 1_347
SHIFT, NOISE, BRIGHTEST = 4, 0.6, 1.5  # pixels; the standard deviation; what is more is cut off

# Files of Python's standard library, the same for every version but for some lines.
MODULES = """
argparse ast bdb calendar configparser csv dataclasses difflib doctest enum fractions
functools gettext heapq inspect ipaddress locale mailbox optparse pdb pickle pickletools
platform plistlib random shutil smtplib socket ssl statistics subprocess tarfile tempfile
textwrap threading tokenize traceback turtle typing uuid warnings weakref
"""
LENGTH = 64  # characters that a sample has
SEQUENCES = {"train": 8192, "test": 2048, "held_out": 2048}
ALPHABET = string.printable[:95] + "\n"  # another character is one kind more
KINDS = len(ALPHABET) + 1


@lru_cache(maxsize=1)
def digits() -> Splits:
    """Images and their classes."""
    splits = mnist.load_digits().holding_out(VALIDATED)
    return Splits(splits.train[:TRAINED], splits.test, splits.held_out)


@lru_cache(maxsize=1)
def few_digits() -> Splits:
    """The first of them, for small nets on a CPU."""
    return Splits(digits().train[:FEW], digits().test, digits().held_out)


@lru_cache(maxsize=1)
def noisy_digits() -> Splits:
    """The same, each image at another place and in noise."""
    rng = np.random.default_rng(1)
    parts = (digits().train, digits().test, digits().held_out)
    return Splits(*(Part(noisy(shifted(p.inputs, rng), rng), p.targets) for p in parts))


@lru_cache(maxsize=1)
def denoising() -> Splits:
    """Noisy images, and what they were without the noise."""
    rng, parts = np.random.default_rng(1), []
    for part in (digits().train, digits().test, digits().held_out):
        clean = shifted(part.inputs, rng)
        parts.append(Part(noisy(clean, rng), clean))
    return Splits(*parts)


def shifted(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each image moved by at most SHIFT pixels either way; what leaves it comes in again."""
    moves = rng.integers(-SHIFT, SHIFT + 1, (2, len(pixels), 1))
    rows, columns = (np.arange(28) - moves) % 28
    images = pixels.reshape(-1, 28, 28)
    samples = np.arange(len(images))[:, None, None]
    return images[samples, rows[:, :, None], columns[:, None, :]].reshape(pixels.shape)


def noisy(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """With normal noise."""
    noise = rng.standard_normal(pixels.shape, dtype=np.float32)
    return np.clip(pixels + np.float32(NOISE) * noise, 0, BRIGHTEST)


@lru_cache(maxsize=1)
def text() -> Splits:
    """Sequences of characters, and the character that follows each of theirs."""
    characters = encoded(source_text())
    wanted = sum(SEQUENCES.values())
    every = len(characters) // (LENGTH + 1)
    if every < wanted:
        raise ValueError(f"the standard library has {every} sequences, {wanted} are needed")
    whole = characters[: every * (LENGTH + 1)].reshape(every, LENGTH + 1)
    drawn = whole[np.random.default_rng(0).permutation(every)[:wanted]]
    counts = np.cumsum(list(SEQUENCES.values()))[:-1]
    return Splits(*(Part(rows[:, :-1], rows[:, 1:]) for rows in np.split(drawn, counts)))


def source_text() -> str:
    """The modules one after the other."""
    folder = Path(sysconfig.get_path("stdlib"))
    return "\n".join((folder / f"{name}.py").read_text("utf-8") for name in MODULES.split())


def encoded(text: str) -> np.ndarray:
    """A number for each character."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    kinds = np.full(128, KINDS - 1)
    kinds[[ord(character) for character in ALPHABET]] = np.arange(KINDS - 1)
    return kinds[np.minimum(codes, 127)]  # 127 is no character of the alphabet
