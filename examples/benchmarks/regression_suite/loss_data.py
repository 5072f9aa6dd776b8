"""Generated data of many kinds, the same ones every time: features, and labels that go with them.

X is in CSR format where it is sparse, and has a column of ones. With it come the scores of a linear
model, or labels where these are made otherwise.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse
import sklearn.datasets

from examples.benchmarks.regression_suite.data_sets import with_ones
from examples.benchmarks.regression_suite.synthetic_data import coin_tosses

Array = np.ndarray


def standardised(X: Array) -> Array:
    """Columns of mean 0 and variance 1, and one of ones."""
    spread = X.std(axis=0)
    return np.c_[(X - X.mean(axis=0)) / np.where(spread, spread, 1.0), np.ones(len(X))]


def one_hot(codes: Array) -> scipy.sparse.csr_array:
    """Zeros and ones from columns of categories; without those that never occur, and with ones."""
    columns = [np.unique(column, return_inverse=True)[1] for column in codes.T]
    widths = np.array([column.max() + 1 for column in columns])
    places = np.stack(columns, axis=1) + np.r_[0, np.cumsum(widths)[:-1]]
    rows = np.repeat(np.arange(len(codes)), len(columns))
    ones = np.ones(places.size)
    return with_ones(scipy.sparse.csr_array((ones, (rows, places.ravel()))))


def categories(rng: np.random.Generator, samples: int, widths: list[int], groups: int) -> Array:
    """Columns of categories, some common and some rare; samples of a group resemble each other."""
    group = rng.integers(groups, size=samples)
    drawn = []
    for width in widths:
        shares = rng.dirichlet(np.full(width, 0.5), size=groups)
        edges = np.cumsum(shares, axis=1)[group]
        drawn.append((rng.random(samples)[:, None] > edges[:, :-1]).sum(axis=1))
    return np.stack(drawn, axis=1)


def rule_of_attributes(seed: int, samples: int, widths: list[int], groups: int, clauses: int):
    """One-hot features, and labels that follow from them without exception: separable.

    The label is the vote of `clauses` sets of categories, each of which the features show.
    """
    rng = np.random.default_rng(seed)
    codes = categories(rng, samples, widths, groups)
    votes = np.zeros(samples)
    for column in rng.choice(len(widths), clauses, replace=False):
        votes += rng.choice([-1.0, 1.0], size=widths[column])[codes[:, column]]
    return one_hot(codes), np.where(votes > np.median(votes), 1.0, -1.0)


def attributes(seed: int, samples: int, widths: list[int], groups: int, strength: float):
    """One-hot features, and scores with a spread of about `strength`."""
    rng = np.random.default_rng(seed)
    X = one_hot(categories(rng, samples, widths, groups))
    return X, X @ rng.normal(0.0, strength / len(widths) ** 0.5, X.shape[1])


def popular_items(seed: int, samples: int, items: int, mean: float, strength: float, offset: float):
    """Sparse zeros and ones: a few items are in most samples, most items in few."""
    rng = np.random.default_rng(seed)
    popularity = 1.0 / (np.arange(items) + 5.0)
    popularity *= mean / popularity.sum()
    activity = rng.lognormal(-0.3, 0.75, samples)
    chances = 1.0 - np.exp(-np.outer(activity, popularity))
    X = with_ones(scipy.sparse.csr_array((rng.random((samples, items)) < chances) * 1.0))
    scores = X @ rng.normal(0.0, strength, items + 1)
    return X, scores - np.median(scores) + offset


def texts(seed: int, documents: int, words: int, classes: int, length: int, purity: float):
    """Counts of words with Zipf's frequencies, which differ between classes; and the classes."""
    rng = np.random.default_rng(seed)
    frequencies = 1.0 / (np.arange(words) + 3.0)
    labels = rng.choice(classes, documents, p=rng.dirichlet(np.full(classes, 3.0)))
    lengths = 1 + rng.poisson(length * rng.lognormal(-0.125, 0.5, documents))
    texts, drawn = np.repeat(np.arange(documents), lengths), np.empty(lengths.sum(), int)
    of_word = labels[texts]
    for label in range(classes):
        p = frequencies * rng.lognormal(0.0, purity, words)
        here = of_word == label
        drawn[here] = rng.choice(words, here.sum(), p=p / p.sum())
    X = scipy.sparse.csr_array((np.ones(len(drawn)), (texts, drawn)), (documents, words))
    X.sum_duplicates()
    return X, labels


def unit_rows(X: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """1 + log(count), rows of length 1, and a column of ones."""
    X = X.copy()
    X.data = 1.0 + np.log(X.data)
    X.data /= np.repeat(np.sqrt(X.multiply(X).sum(axis=1)), np.diff(X.indptr))
    return with_ones(X)


def factors(seed: int, samples: int, features: int, hidden: int, tails: float = np.inf) -> Array:
    """Dense features that depend on hidden factors; with heavy tails where `tails` is small."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((samples, hidden)) @ rng.standard_normal((hidden, features))
    X = Z + 0.5 * rng.standard_normal((samples, features))
    if np.isfinite(tails):
        X *= np.sqrt(tails / rng.chisquare(tails, samples))[:, None]
    return standardised(X)


def tossed(seed: int, X: Array, strength: float, offset: float = 0.0) -> Array:
    """Labels of -1 or 1, by the logistic model of random weights."""
    rng = np.random.default_rng(seed)
    scores = X @ rng.normal(0.0, 1.0, X.shape[1])
    return coin_tosses(rng, strength * (scores - scores.mean()) / scores.std() + offset)


def measured(seed: int, X: Array, noise: float, outliers: float) -> Array:
    """Targets of a linear model of spread 3, with noise and a share of outliers of any size."""
    rng = np.random.default_rng(seed)
    scores = X @ rng.normal(0.0, 1.0, X.shape[1])
    y = 3.0 * scores / scores.std() + noise * rng.standard_normal(X.shape[0])
    return y + (rng.random(X.shape[0]) < outliers) * 10.0 * rng.standard_cauchy(X.shape[0])


def counted(seed: int, X: Array, spread: float, level: float) -> Array:
    """Counts of a Poisson model whose rates have the logarithms `level` +- `spread`."""
    rng = np.random.default_rng(seed)
    scores = X @ rng.normal(0.0, 1.0, X.shape[1])
    return rng.poisson(np.exp(level + spread * (scores - scores.mean()) / scores.std())) * 1.0


def bumps(seed: int, X: Array, centres: int) -> Array:
    """How close each sample is to each of some of them (a Gaussian of the distance), and ones."""
    rng = np.random.default_rng(seed)
    C = X[rng.choice(len(X), centres, replace=False)]
    squares = ((X[:, None, :] - C) ** 2).sum(axis=2)
    return np.c_[np.exp(-squares / np.median(squares)), np.ones(len(X))]


def products(X: Array) -> Array:
    """The features, the products of any two of them, standardised, and ones."""
    first, second = np.triu_indices(X.shape[1])
    return standardised(np.c_[X, X[:, first] * X[:, second]])


def units(seed: int, samples: int, features: int, decades: float) -> Array:
    """Skewed positive features in units that differ by some decades, and ones."""
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.uniform(-decades / 2, decades / 2, features)
    return np.c_[rng.lognormal(0.0, 0.5, (samples, features)) * scales, np.ones(samples)]


def powers(seed: int, samples: int, degree: int) -> Array:
    """1, t, t^2, ... of three variables t in [0, 1]: badly conditioned."""
    t = np.random.default_rng(seed).random((samples, 3))
    return np.hstack([np.ones((samples, 1)), *(t**k for k in range(1, degree + 1))])


def seasons(seed: int, samples: int) -> Array:
    """Hours of a year: waves of the day and of the week, weather, and their products."""
    rng = np.random.default_rng(seed)
    hour = np.sort(rng.choice(8760, samples, replace=samples > 8760))
    angles = 2 * np.pi * hour[:, None] / np.array([24.0, 12.0, 168.0, 8760.0])
    weather = np.cumsum(rng.standard_normal((samples, 3)), axis=0) * 0.05
    return products(np.c_[np.sin(angles), np.cos(angles), weather])


def friedman(make, seed: int, samples: int, noise: float) -> tuple[Array, Array]:
    """One of scikit-learn's three, targets of spread 3; the noise has outliers."""
    X, y = make(samples, noise=0.0, random_state=seed)
    rng = np.random.default_rng(seed)
    return X, 3.0 * (y - y.mean()) / y.std() + noise * rng.standard_t(2, samples)


def two_moons_and_bumps():
    """1,000 points of two moons, as closeness to 100 of them."""
    X, y = sklearn.datasets.make_moons(1000, noise=0.3, random_state=0)
    return bumps(0, X, 100), np.where(y, 1.0, -1.0)
