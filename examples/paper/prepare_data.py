"""A data folder for machines that have numpy, scipy and torch only, and no network."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from examples.data import mnist, noisy_speech, spoken_digits, starcraft
from examples.data.data_files import locate


def prepare(folder: Path) -> None:
    """Copy what is read as it is, and compute the features of the Aurora stand-in."""
    for source in (*mnist.SOURCES.values(), *starcraft.SOURCES.values()):
        target = folder / source.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(locate(source), target)
    features = folder / spoken_digits.PREPARED.path
    if not features.is_file():
        test, held_out, _ = spoken_digits.speakers()
        noisy_speech.prepare(features, unseen=np.concatenate([test, held_out]))
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder}: {size / 1e6:.0f} MB; use it with KSDMIN_DATA={folder}")
