"""Preparing the Aurora stand-in: noisy copies of spoken digits, and their cepstra by librosa.

AudioMNIST at 8 kHz with the eight noises of the AURORA database, four copies of every utterance at
signal-to-noise ratios from 0 to 20 dB. What is stored is small (13 cepstra a frame in float16);
everything else is computed when it is loaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from examples.data.data_files import Source, locate
from examples.data.speech_features import CEPSTRA

COPIES = 4
RATIOS = (0, 5, 10, 15, 20)  # dB
RATE, HOP, WINDOW, TRANSFORM, BANDS, LOWEST = 8_000, 80, 200, 256, 23, 64.0
LAST_SHARE = 0.25  # of each noise, kept for the speakers who are not trained on
SEED = 2000
ADVICE = (
    "See examples/paper/README.md for what it holds: AudioMNIST (github.com/soerenab/AudioMNIST) "
    "resampled to 8 kHz with HMM states from forced alignment, and the noises of NOIZEUS."
)
AUDIO, LABELS, NOISE, NOISE_INDEX = (
    Source(path, advice=ADVICE)
    for path in (
        "spoken-digits/audio_8k.flac",
        "spoken-digits/labels.npz",
        "noise/noise_8k.flac",
        "noise/index.npz",
    )
)

Signal = npt.NDArray[np.float32]


def prepare(target: Path, unseen: npt.NDArray[np.integer]) -> None:
    """Write the cepstra of all noisy copies; `unseen` speakers get noise of their own."""
    labels, audio = np.load(locate(LABELS)), read(AUDIO)
    names, noises = noise_recordings()
    rng = np.random.default_rng(SEED)
    count = len(labels["digit"])
    kinds = np.array([rng.permutation(len(noises))[:COPIES] for _ in range(count)]).T
    ratios = rng.choice(RATIOS, size=(COPIES, count))
    frames = np.diff(labels["frame_offsets"])
    cepstra = []
    for kind, ratio in zip(kinds, ratios, strict=True):
        for i, (begin, end) in enumerate(zip(*spans(labels["sample_offsets"]), strict=True)):
            noise = part(noises[kind[i]], last=labels["speaker"][i] in unseen)
            noisy = mixed(audio[begin:end], noise, ratio[i], rng)
            cepstra.append(cepstra_of(noisy)[: frames[i]])
    target.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        target,
        cepstra=np.concatenate(cepstra).astype(np.float16),
        noise=kinds.astype(np.uint8),
        noise_names=names,
        ratio=ratios.astype(np.int8),
        **{name: labels[name] for name in ("frame_offsets", "state", "speaker", "digit")},
    )


def read(source: Source) -> Signal:
    """A sound file."""
    import soundfile

    return soundfile.read(locate(source), dtype="float32")[0]


def noise_recordings() -> tuple[npt.NDArray[np.str_], list[Signal]]:
    """The noises and their names."""
    index, sound = np.load(locate(NOISE_INDEX)), read(NOISE)
    begins, ends = spans(index["offsets"])
    return index["types"], [sound[begin:end] for begin, end in zip(begins, ends, strict=True)]


def spans(offsets: npt.NDArray[np.integer]) -> tuple[Any, Any]:
    """Begins and ends."""
    return offsets[:-1], offsets[1:]


def part(noise: Signal, last: bool) -> Signal:
    """The last quarter of a noise, or what comes before it."""
    cut = int(len(noise) * (1 - LAST_SHARE))
    return noise[cut:] if last else noise[:cut]


def mixed(speech: Signal, noise: Signal, ratio: float, rng: np.random.Generator) -> Signal:
    """Speech with a random piece of noise; long enough for the last frame's transform."""
    length = len(speech) + TRANSFORM
    begin = rng.integers(len(noise) - length)
    piece = noise[begin : begin + length]
    powers = np.mean(speech**2), np.mean(piece**2)
    scale = np.sqrt(powers[0] / (powers[1] * 10 ** (ratio / 10)))
    return np.pad(speech, (0, TRANSFORM)) + scale * piece


def cepstra_of(signal: Signal) -> npt.NDArray[np.float32]:
    """13 mel-frequency cepstra every 10 ms."""
    import librosa

    return librosa.feature.mfcc(
        y=signal,
        sr=RATE,
        n_mfcc=CEPSTRA,
        n_fft=TRANSFORM,
        hop_length=HOP,
        win_length=WINDOW,
        window="hamming",
        center=False,
        n_mels=BANDS,
        fmin=LOWEST,
    ).T
