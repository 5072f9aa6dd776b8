"""From cepstra to the inputs of a frame classifier: normalised, with deltas and nine frames."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

CEPSTRA = 13
CONTEXT = 4  # frames on either side
DELTA_SPAN = 2
INPUTS = (2 * CONTEXT + 1) * 3 * CEPSTRA + 1

Floats = npt.NDArray[np.float32]


def frame_features(cepstra: Floats, starts: npt.NDArray[np.int64]) -> Floats:
    """13 cepstra, their slopes, the slopes' slopes; and the utterance's loudness.

    Parameters
    ----------
    cepstra : (frames, 13) array
        Of utterances, one after the other.
    starts : (utterances + 1,) array
        Where they begin; the last entry is the number of frames.

    The mean of every utterance is taken out, which removes much of speaker and noise; the first
    cepstrum's, its loudness, is the last feature.
    """
    lengths = np.diff(starts)
    means = np.add.reduceat(cepstra, starts[:-1], axis=0) / lengths[:, None]
    means = np.repeat(means, lengths, axis=0).astype(np.float32)
    static, near = cepstra - means, Neighbours(starts)
    first = delta(static, near)
    return np.hstack([static, first, delta(first, near), means[:, :1]])


def standardised(features: Floats, trained: npt.NDArray[np.bool_]) -> Floats:
    """Of mean zero and variance one over the frames that are trained on."""
    known = features[trained]
    return (features - known.mean(axis=0)) / known.std(axis=0)


def with_context(features: Floats, starts: npt.NDArray[np.int64]) -> Floats:
    """Nine frames in a row, and the loudness once: 352 inputs."""
    near, width = Neighbours(starts), features.shape[1] - 1
    out = np.empty((len(features), INPUTS), np.float32)
    for place, shift in enumerate(range(-CONTEXT, CONTEXT + 1)):
        out[:, place * width : (place + 1) * width] = features[near.at(shift), :-1]
    out[:, -1] = features[:, -1]
    return out


class Neighbours:
    """Frames before and after, within the same utterance: its ends are repeated."""

    def __init__(self, starts: npt.NDArray[np.int64]) -> None:
        lengths = np.diff(starts)
        self._here = np.arange(starts[-1])
        self._first = np.repeat(starts[:-1], lengths)
        self._last = np.repeat(starts[1:] - 1, lengths)

    def at(self, shift: int) -> npt.NDArray[np.int64]:
        """The index of the frame `shift` later."""
        return np.clip(self._here + shift, self._first, self._last)


def delta(values: Floats, near: Neighbours) -> Floats:
    """The slope of a line through five frames."""
    weights = range(1, DELTA_SPAN + 1)
    total = sum(w * (values[near.at(w)] - values[near.at(-w)]) for w in weights)
    return (total / (2 * sum(w * w for w in weights))).astype(np.float32)
