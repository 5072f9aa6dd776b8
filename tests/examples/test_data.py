"""The data sets of the examples: what they hold, and what is said where they are missing."""

import gzip

import numpy as np
import pytest

from examples.data import (
    curves,
    mnist,
    spoken_digits,
)
from examples.data.data_files import MissingData, Source, locate


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
