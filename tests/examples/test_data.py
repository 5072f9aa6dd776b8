"""The data sets of the examples: curves, and what is said where files are missing."""

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
