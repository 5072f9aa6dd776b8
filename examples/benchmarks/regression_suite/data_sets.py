"""The data sets: X (in CSR format where it is sparse), labels, the number of classes.

The files of real data are found by `examples.data.data_files`.
"""

from __future__ import annotations

import functools
import lzma

import numpy as np
import scipy.sparse
import sklearn.datasets

from examples.benchmarks.regression_suite import synthetic_data
from examples.benchmarks.regression_suite.linear_model import LinearModel
from examples.data import mnist, starcraft
from examples.data.data_files import Source, locate

L2 = (1e-4, 1e-5, 1e-6, 1e-7)
A9A = Source("a9a/a9a.xz", advice="It is a9a from LIBSVM's page of data sets, packed by xz.")
FEWEST_EVENTS = 5  # of a game


def a9a():
    """Census incomes, LIBSVM's a9a: 32,561 x 123, zeros and ones."""
    with lzma.open(locate(A9A), "rt") as file:
        lines = [line.split() for line in file]
    labels = np.array([float(label) for label, *_ in lines])
    columns = [np.array([int(entry.split(":")[0]) - 1 for entry in row]) for _, *row in lines]
    pointers = np.cumsum([0, *map(len, columns)])
    ones = np.ones(pointers[-1])
    X = scipy.sparse.csr_array((ones, np.concatenate(columns), pointers), (len(lines), 123))
    return X, labels, 2


def ten_digits():
    """Handwritten digits: 60,000 x 785, pixels in [0, 1] and a column of ones."""
    pixels = mnist.read("train-images-idx3", header=16).reshape(-1, 784)
    return with_ones(pixels / 255), mnist.labels("train"), 10


def parity():
    """MNIST, even against odd digits."""
    X, digits, _ = ten_digits()
    return X, np.where(digits % 2, -1.0, 1.0), 2


def zerg_strategies():
    """Terran against Zerg: the Zerg strategy from what both players did in five minutes.

    907 games x 5,049, wide and sparse: whether each of 99 events happened, when, and for each pair
    of them which came first. Weber and Mateas' replays without repeats and near-empty games.
    """
    players = [map(tuple, starcraft.read(race)) for race in ("Terran", "Zerg")]
    games = list(dict.fromkeys(zip(*players, strict=True)))  # a repeat has both rows the same
    frames = np.array([[*terran[:-1], *zerg[:-1]] for terran, zerg in games], float)
    _, labels = np.unique([zerg[-1] for _, zerg in games], return_inverse=True)
    seen = (frames >= 0) & (frames <= starcraft.FIVE_MINUTES)
    first, second = np.triu_indices(frames.shape[1], 1)
    order = np.sign(frames[:, second] - frames[:, first]) * (seen[:, first] & seen[:, second])
    X = scipy.sparse.csr_array(np.c_[seen, seen * frames / starcraft.FIVE_MINUTES, order])
    played = seen.sum(axis=1) >= FEWEST_EVENTS
    return X[played], labels[played], labels.max() + 1


def cancer():
    """Breast cancer, scikit-learn's: 569 x 31 in the units it was measured in, and ones.

    Ill conditioned, as unscaled data are: an area is thousands, a fractal dimension
    hundredths.
    """
    X, labels = sklearn.datasets.load_breast_cancer(return_X_y=True)
    return np.c_[X, np.ones(len(X))], np.where(labels, 1.0, -1.0), 2


def with_ones(X) -> scipy.sparse.csr_array:
    columns = [scipy.sparse.csr_array(X), np.ones((X.shape[0], 1))]
    return scipy.sparse.csr_array(scipy.sparse.hstack(columns, format="csr"))


SETS = {
    "a9a": a9a,
    "mnist-parity": parity,
    "mnist": ten_digits,
    "starcraft": zerg_strategies,
    "zipf": synthetic_data.zipf,
    "cancer": cancer,
    "decades": synthetic_data.decades,
    "many": lambda: synthetic_data.decades(samples=200_000, features=40, decades=3),
}


@functools.cache
def load(name: str):
    return SETS[name]()


def problem(name: str, l2: float, **options) -> LinearModel:
    return LinearModel(*load(name), l2, **options)
