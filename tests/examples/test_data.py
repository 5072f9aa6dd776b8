"""The data sets of the examples: what they hold, and what is said where they are missing."""

import gzip

import numpy as np
import pytest

from examples.data import (
    curves,
    mnist,
    noisy_speech,
    speech_features,
    spoken_digits,
    starcraft,
)
from examples.data.data_files import MissingData, Source, locate
from examples.data.splits import Part, Splits, images


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The data folder, empty as yet."""
    monkeypatch.setenv("KSDMIN_DATA", str(tmp_path))
    return tmp_path


def test_curves_have_the_published_statistics():
    train, test = (curves.generate(n, np.random.default_rng(n)) for n in (6_000, 2_000))
    found = curves.statistics(train, test)
    assert found["error of the mean image"] == pytest.approx(16.96, rel=0.02)
    assert found["error of the principal components"] == pytest.approx(5.90, rel=0.04)
    assert found["mean ink"] == pytest.approx(0.043, rel=0.02)
    assert train.min() == 0
    assert train.max() <= 1


def test_curves_are_the_same_each_time_and_their_points_keep_the_rules():
    again = (curves.generate(5, np.random.default_rng(1)) for _ in range(2))
    np.testing.assert_array_equal(*again)
    x, y = curves.control_points(2_000, np.random.default_rng(0))
    assert (np.diff(x) >= curves.APART).all()
    assert min(x.min(), y.min()) >= curves.LOWEST
    assert max(x.max(), y.max()) <= curves.HIGHEST


def test_a_missing_file_says_where_to_get_it_and_how_to_point_to_it(folder, monkeypatch):
    with pytest.raises(MissingData, match=r"KSDMIN_DATA=.*train-images.*public at https://"):
        mnist.load_digits()
    with pytest.raises(MissingData, match=r"examples\.paper prepare"):
        spoken_digits.load()
    monkeypatch.delenv("KSDMIN_DATA")
    with pytest.raises(MissingData, match="no public address of its own: set KSDMIN_DATA"):
        locate(Source("somewhere/file", advice="Ask."))


def test_mnist_is_read_and_some_of_it_held_out(folder, monkeypatch):
    monkeypatch.setattr(mnist, "HELD_OUT", 10)
    rng = np.random.default_rng(0)
    (folder / "mnist").mkdir()
    for name, count in (("train", 60), ("t10k", 20)):
        pixels, digits = rng.integers(256, size=(count, 784)), np.arange(count) % 10
        for kind, header, values in (("images-idx3", 16, pixels), ("labels-idx1", 8, digits)):
            path = folder / "mnist" / f"{name}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(bytes(header) + values.astype(np.uint8).tobytes()))
    splits = mnist.load_digits()
    assert [len(part) for part in (splits.train, splits.held_out, splits.test)] == [50, 10, 20]
    assert splits.held_out.targets.tolist() == list(range(10))
    assert 0 <= splits.train.inputs.min() < splits.train.inputs.max() == 1
    assert mnist.load_images().train.targets is not splits.train.targets


def test_holding_out_moves_samples_and_keeps_images_their_own_targets():
    train = images(np.arange(12, dtype=np.float32).reshape(6, 2))
    splits = Splits(train, test=train, held_out=train[:0]).holding_out(2)
    assert splits.train.targets is splits.train.inputs
    assert splits.held_out.inputs[:, 0].tolist() == [8, 10]
    again = splits.holding_out(0)
    assert len(again.held_out) == 0
    assert again.train.inputs.tolist() == train.inputs.tolist()
    assert again.train.targets is again.train.inputs
    with pytest.raises(ValueError, match="cannot hold out 6 of 6"):
        splits.holding_out(6)


def test_what_was_held_out_is_put_back_with_its_targets():
    train = Part(np.arange(6, dtype=np.float32).reshape(6, 1), np.arange(6))
    splits = Splits(train, test=train, held_out=train[:0]).holding_out(2).holding_out(1)
    assert splits.train.targets.tolist() == splits.train.inputs[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert splits.held_out.targets.tolist() == [5]


def arff(rows):
    return "@relation games\n@data\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)


def test_starcraft_drops_repeated_and_empty_games(folder):
    full = [100 * i for i in range(1, 7)]
    terran = [[*full, "Bio"], [*full, "Bio"], [-1] * 6 + ["Bio"], [*full[::-1], "Unknown"]]
    zerg = [[50, "Lurker"], [50, "Lurker"], [60, "Lurker"], [7_300, "Standard"]]
    (folder / "starcraft").mkdir()
    for race, rows in (("Terran", terran), ("Zerg", zerg)):
        (folder / f"starcraft/scmTvZ_{race}_Mid.arff").write_text(arff(rows))
    times, strategies = starcraft.games()
    assert strategies.tolist() == ["Lurker", "Standard"]
    assert times.tolist() == [[*full, 50], [*full[::-1], np.inf]]  # 7,300 is after five minutes


def test_starcraft_features_are_presence_time_and_order():
    found = starcraft.features(np.array([[720.0, 3600.0, np.inf]]))
    present, when, order = np.split(found[0], 3)
    assert present.tolist() == [1, 1, 0]
    np.testing.assert_allclose(when, [0.1, 0.5, 0])
    assert order.tolist() == [1, 1, 1]  # before the second; both before what never happened
    assert starcraft.features(np.ones((1, 99))).shape == (1, 5_049)


def test_slopes_and_context_stay_within_an_utterance():
    starts = np.array([0, 5, 12])
    near = speech_features.Neighbours(starts)
    assert near.at(-4).tolist() == [0] * 5 + [5] * 5 + [6, 7]
    ramp = np.arange(12, dtype=np.float32)[:, None]
    assert speech_features.delta(ramp, near)[2, 0] == speech_features.delta(ramp, near)[8, 0] == 1
    frames = np.hstack([np.repeat(ramp, 39, axis=1), 100 + ramp])
    inputs = speech_features.with_context(frames, starts)
    assert inputs.shape == (12, 352)
    assert inputs[5, :351:39].tolist() == [5, 5, 5, 5, 5, 6, 7, 8, 9]
    assert inputs[:, -1].tolist() == (100 + ramp[:, 0]).tolist()


def test_loudness_is_the_mean_that_is_taken_out():
    cepstra = np.random.default_rng(0).standard_normal((12, 13)).astype(np.float32)
    found = speech_features.frame_features(cepstra, np.array([0, 5, 12]))
    np.testing.assert_allclose(found[:5, :13].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(found[5:, -1], cepstra[5:, 0].mean(), rtol=1e-5)


def test_spoken_digits_share_no_speaker(folder):
    rng, count, length = np.random.default_rng(0), 120, 7
    frames = count * length
    path = folder / spoken_digits.PREPARED.path
    path.parent.mkdir()
    speaker = 1 + np.arange(count) % 60
    np.savez(
        path,
        # any features: the split is by speaker
        cepstra=rng.standard_normal((4 * frames, 13)).astype(np.float16),
        frame_offsets=length * np.arange(count + 1),
        state=rng.integers(60, size=frames).astype(np.uint8),
        speaker=speaker.astype(np.uint8),
        digit=(np.arange(count) % 10).astype(np.uint8),
        noise=rng.integers(8, size=(4, count)).astype(np.uint8),
        noise_names=np.array(list("abcdefgh")),
    )
    splits = spoken_digits.load()
    sizes = {name: len(getattr(splits, name)) for name in ("train", "test", "held_out")}
    assert sizes == {"train": 96 * 4 * 7, "test": 16 * 4 * 7, "held_out": 8 * 4 * 7}
    everyone = np.concatenate(spoken_digits.speakers())
    assert sorted(everyone) == list(range(1, 61))
    np.testing.assert_allclose(splits.train.inputs[:, 156:195].std(axis=0), 1, rtol=1e-3)
    assert splits.utterances.starts[-1] == len(splits.test)
    np.testing.assert_allclose(np.exp(splits.utterances.digit_of_class).sum(axis=0), 1, rtol=1e-5)


def test_noise_is_mixed_at_the_ratio_asked_for():
    rng = np.random.default_rng(0)
    speech, noise = rng.standard_normal((2, 8_000)).astype(np.float32)
    noisy = noisy_speech.mixed(speech[:4_000], 7 * noise, 10, rng)
    added = noisy[:4_000] - speech[:4_000]
    ratio = 10 * np.log10(np.mean(speech[:4_000] ** 2) / np.mean(added**2))
    assert ratio == pytest.approx(10, abs=0.3)
    assert len(noisy) == 4_000 + noisy_speech.TRANSFORM
    parts = noisy_speech.part(noise, last=False), noisy_speech.part(noise, last=True)
    np.testing.assert_array_equal(np.concatenate(parts), noise)


@pytest.mark.filterwarnings("ignore")  # librosa's own
def test_cepstra_come_every_10_ms_and_hear_a_tone():
    pytest.importorskip("librosa")
    time = np.arange(8_000) / 8_000
    low, high = (np.sin(2 * np.pi * f * time).astype(np.float32) for f in (300, 3_000))
    found = noisy_speech.cepstra_of(low)
    assert found.shape == (97, 13)  # the last frame's transform ends within the signal
    assert found[:, 1].mean() > noisy_speech.cepstra_of(high)[:, 1].mean()


def test_parts_of_labelled_samples_are_parts_of_both():
    part = Part(np.eye(3, dtype=np.float32), np.array([7, 8, 9]))
    assert part[np.array([2, 0])].targets.tolist() == [9, 7]
    assert part[1:].inputs.shape == (2, 3)
