"""The Aurora stand-in: which of 60 HMM states is each frame of a noisy spoken digit in?

Aurora-2 is licensed, so this is not it. Speakers of the test set, and of what is held out, are not
trained on; neither are the pieces of noise that they get.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from examples.data.data_files import Source, locate
from examples.data.noisy_speech import COPIES
from examples.data.speech_features import frame_features, standardised, with_context
from examples.data.splits import Part, Splits, Utterances

STATES, DIGITS = 60, 10
SPEAKERS, TEST_SPEAKERS, HELD_OUT_SPEAKERS = 60, 8, 4
SEED = 2002
PREPARED = Source(
    "spoken-digits/features.npz",
    advice="Make it with `python -m examples.paper prepare --cache FOLDER`, and set "
    "KSDMIN_DATA=FOLDER.",
)


def load() -> Splits:
    """About 1.2 million frames to train on."""
    with np.load(locate(PREPARED)) as stored:
        files = {name: stored[name] for name in stored.files}
    who = dict(zip(("test", "held_out", "train"), speakers(), strict=True))
    wanted = {name: np.isin(files["speaker"], chosen) for name, chosen in who.items()}
    lengths = np.diff(files["frame_offsets"])
    features = frame_features(files["cepstra"].astype(np.float32), starts_of(lengths))
    features = standardised(features, np.tile(np.repeat(wanted["train"], lengths), COPIES))
    parts = {name: frames_of(files, features, chosen) for name, chosen in wanted.items()}
    return Splits(**parts, utterances=utterances(files, wanted["test"], wanted["train"]))


def speakers() -> tuple[npt.NDArray[np.int64], ...]:
    """Who is tested on, held out, trained on."""
    order = 1 + np.random.default_rng(SEED).permutation(SPEAKERS)
    test, held_out, train = np.split(order, np.cumsum([TEST_SPEAKERS, HELD_OUT_SPEAKERS]))
    return test, held_out, train


def starts_of(lengths: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Where utterances of these lengths begin, all of their copies one after the other."""
    return np.concatenate([[0], np.cumsum(np.tile(lengths, COPIES))])


def frames_of(
    files: dict[str, np.ndarray], features: npt.NDArray[np.float32], wanted: npt.NDArray[np.bool_]
) -> Part:
    """Inputs and states of all copies of the wanted utterances."""
    lengths = np.diff(files["frame_offsets"])
    keep = np.repeat(wanted, lengths)
    inputs = with_context(features[np.tile(keep, COPIES)], starts_of(lengths[wanted]))
    return Part(inputs, np.tile(files["state"][keep].astype(np.int64), COPIES))


def utterances(
    files: dict[str, np.ndarray], tested: npt.NDArray[np.bool_], trained: npt.NDArray[np.bool_]
) -> Utterances:
    """How test frames make words: the log-probability of each state in each digit."""
    lengths = np.diff(files["frame_offsets"])
    keep = np.repeat(trained, lengths)
    counts = np.ones((STATES, DIGITS))
    np.add.at(counts, (files["state"][keep], np.repeat(files["digit"], lengths)[keep]), 1)
    return Utterances(
        starts=starts_of(lengths[tested]),
        digits=np.tile(files["digit"][tested].astype(np.int64), COPIES),
        noises=files["noise"][:, tested].reshape(-1).astype(np.int64),
        noise_names=tuple(str(name) for name in files["noise_names"]),
        digit_of_class=np.log(counts / counts.sum(axis=0)).astype(np.float32),
    )
