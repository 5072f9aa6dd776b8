"""What a loader returns: samples to train on, to stop by, and to test on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Part:
    """Inputs and targets, one row per sample; an auto-encoder's targets are its inputs."""

    inputs: npt.NDArray[np.float32]
    targets: npt.NDArray[np.generic]

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: slice | npt.NDArray[np.integer]) -> Part:
        if self.targets is self.inputs:
            return images(self.inputs[rows])
        return Part(self.inputs[rows], self.targets[rows])


@dataclass(frozen=True)
class Utterances:
    """What sums frame posteriors to a word: `starts` has one entry more than there are."""

    starts: npt.NDArray[np.integer]
    digits: npt.NDArray[np.integer]
    noises: npt.NDArray[np.integer]
    noise_names: tuple[str, ...]
    digit_of_class: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Splits:
    """The parts of a data set.

    Attributes
    ----------
    train, test : Part
        To train on, and to report the CV error of.
    held_out : Part
        Neither trained on nor reported: chooses where a run stops. It may be empty.
    utterances : Utterances or None
        How the test frames of speech belong together.
    """

    train: Part
    test: Part
    held_out: Part
    utterances: Utterances | None = None

    def holding_out(self, count: int) -> Splits:
        """The last `count` samples held out, instead of what is held out now."""
        both = joined(self.train, self.held_out)
        if not 0 <= count < len(both):
            raise ValueError(f"cannot hold out {count} of {len(both)} training samples")
        cut = len(both) - count
        return replace(self, train=both[slice(0, cut)], held_out=both[slice(cut, None)])


def joined(first: Part, second: Part) -> Part:
    """The samples of both; images stay their own targets."""
    if not len(second):
        return first
    inputs = np.concatenate([first.inputs, second.inputs])
    if first.targets is first.inputs:
        return images(inputs)
    return Part(inputs, np.concatenate([first.targets, second.targets]))


def images(pixels: npt.NDArray[np.float32]) -> Part:
    """Images that are their own targets."""
    return Part(pixels, pixels)
