"""Sums of losses of kinds that nothing was tuned on, in two halves.

Within each kind the sets of SETS take turns: the first, third, ... are for tuning, the second,
fourth, ... are set aside: run once, when a change is finished, never to choose it. That rule was
written down before any of them was run.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import sklearn.datasets as bundled

from examples.benchmarks.regression_suite import loss_data as made
from examples.benchmarks.regression_suite.linear_model import LinearModel
from examples.benchmarks.regression_suite.loss_functions import Cauchy, Huber, LogCosh, Poisson
from examples.benchmarks.regression_suite.synthetic_data import coin_tosses
from examples.data.data_files import MissingData

L2 = (1e-4, 1e-6, 1e-8)
TUNING, SET_ASIDE = HALVES = "tuning", "set-aside"


def signs(labels: Any) -> np.ndarray:
    return np.where(labels, 1.0, -1.0)


def statsmodels_table(name: str) -> np.ndarray:
    """A table that the package statsmodels carries (it need not be importable)."""
    found = importlib.util.find_spec("statsmodels")
    if found is None or found.origin is None:
        raise MissingData(f"The data set {name} is part of statsmodels: pip install statsmodels")
    path = Path(found.origin).parent / "datasets" / name / f"{name}.csv"
    return np.genfromtxt(path, delimiter=",", skip_header=1)


# One-hot features


def fungi():
    """8,000 x 110, separable: 21 attributes with 2 to 9 values."""
    widths = [2, 9, 4, 6, 3, 7, 5, 4, 8, 2, 6, 5, 9, 3, 4, 7, 6, 5, 5, 4, 5]
    X, labels = made.rule_of_attributes(1, 8000, widths, groups=6, clauses=5)
    return X, labels, 2


def households():
    """20,000 x 250 with many rare values."""
    X, scores = made.attributes(2, 20_000, [2, 2, 5, 7, 9, 15, 40, 120, 16, 6, 7, 20], 8, 3.0)
    return X, coin_tosses(np.random.default_rng(2), scores), 2


def marriages():
    """Fair's survey of 6,366 marriages (statsmodels), every answer a category."""
    table = statsmodels_table("fair")
    return made.one_hot(table[:, :-1]), signs(table[:, -1] > 0), 2


def diagnoses():
    """5,000 x 150, separable: 30 attributes with 5 values."""
    X, labels = made.rule_of_attributes(4, 5000, [5] * 30, groups=12, clauses=9)
    return X, labels, 2


# Sparse zeros and ones


def pages():
    """50,000 x 300, 12 ones in a row; one label in ten is positive."""
    X, scores = made.popular_items(5, 50_000, 300, 12.0, 1.0, -2.5)
    return X, coin_tosses(np.random.default_rng(5), scores), 2


def baskets():
    """40,000 x 500, 20 ones in a row."""
    X, scores = made.popular_items(6, 40_000, 500, 20.0, 0.7, 0.0)
    return X, coin_tosses(np.random.default_rng(6), scores), 2


def links():
    """12,000 x 2,000, 30 ones in a row."""
    X, scores = made.popular_items(7, 12_000, 2000, 30.0, 1.0, -1.0)
    return X, coin_tosses(np.random.default_rng(7), scores), 2


def fingerprints():
    """6,000 x 300, 40 ones in a row."""
    X, scores = made.popular_items(8, 6000, 300, 40.0, 0.6, 1.0)
    return X, coin_tosses(np.random.default_rng(8), scores), 2


# Texts


def news():
    """6,000 texts of 15 classes, 2,500 words, rows of length 1."""
    X, labels = made.texts(9, 6000, 2500, 15, 60, 1.0)
    return made.unit_rows(X), labels, 15


def abstracts():
    """5,000 texts of 10 classes, 1,500 words, counts."""
    X, labels = made.texts(10, 5000, 1500, 10, 50, 0.7)
    return made.with_ones(X), labels, 10


def reviews():
    """10,000 texts of 2 classes, 4,000 words, counts."""
    X, labels = made.texts(11, 10_000, 4000, 2, 70, 0.4)
    return made.with_ones(X), signs(labels), 2


def tickets():
    """4,000 texts of 25 classes, 1,000 words, rows of length 1."""
    X, labels = made.texts(12, 4000, 1000, 25, 40, 0.9)
    return made.unit_rows(X), labels, 25


# Dense and standardised


def sensors():
    """93,000 x 55, from 12 hidden factors."""
    X = made.factors(13, 93_000, 54, 12)
    return X, made.tossed(13, X, 3.0, 0.5), 2


def particles():
    """60,000 x 41 with heavy tails, from 20 hidden factors."""
    X = made.factors(14, 60_000, 40, 20, tails=4.0)
    return X, made.tossed(14, X, 2.0), 2


def hastie():
    """scikit-learn's Hastie 10.2, 12,000 x 66: ten variables, their products."""
    X, y = bundled.make_hastie_10_2(12_000, random_state=0)
    return made.products(X), y, 2


def clusters():
    """scikit-learn's make_classification: 30,000 x 41, four classes of two clusters each."""
    X, y = bundled.make_classification(
        30_000, 40, n_informative=12, n_redundant=10, n_classes=4, random_state=0
    )
    return made.standardised(X), y, 4


# Counts


def doctor():
    """RAND's health insurance experiment (statsmodels): 20,190 x 10, visits to a doctor."""
    table = statsmodels_table("randhie")
    return made.standardised(table[:, 1:]), table[:, 0], Poisson


def claims():
    """30,000 x 120 one-hot, one claim in ten policies."""
    X, _ = made.attributes(18, 30_000, [2, 3, 6, 11, 22, 10, 48, 5, 12], 5, 1.0)
    return X, made.counted(18, X, 0.7, -2.5), Poisson


def cells():
    """4,000 x 31 dense, counts of some tens."""
    X = made.factors(19, 4000, 30, 8)
    return X, made.counted(19, X, 0.8, 2.0), Poisson


def bicycles():
    """8,760 hours x 78: hirings from waves and weather."""
    X = made.seasons(20, 8760)
    return X, made.counted(20, X, 0.9, 1.5), Poisson


# Robust losses


def huber_friedman1():
    """scikit-learn's Friedman 1 with products, 10,000 x 66, Huber's loss."""
    X, y = made.friedman(bundled.make_friedman1, 21, 10_000, 0.5)
    return made.products(X), y, Huber


def cauchy_outliers():
    """20,000 x 61 dense with outliers, Cauchy's loss."""
    X = made.factors(22, 20_000, 60, 25)
    return X, made.measured(22, X, 0.5, 0.1), Cauchy


def logcosh_diabetes():
    """Diabetes (scikit-learn) with products, 442 x 66, log cosh."""
    X, y = bundled.load_diabetes(return_X_y=True)
    return made.products(X), 3 * (y - y.mean()) / y.std(), LogCosh


def logcosh_items():
    """25,000 x 401 sparse, log cosh."""
    X, _ = made.popular_items(24, 25_000, 400, 25.0, 1.0, 0.0)
    return X, made.measured(24, X, 0.7, 0.05), LogCosh


def cauchy_friedman3():
    """scikit-learn's Friedman 3 with products, 6,000 x 15, Cauchy's loss."""
    X, y = made.friedman(bundled.make_friedman3, 25, 6000, 0.3)
    return made.products(X), y, Cauchy


def huber_friedman2():
    """scikit-learn's Friedman 2 with products, 15,000 x 15, Huber's loss."""
    X, y = made.friedman(bundled.make_friedman2, 26, 15_000, 0.5)
    return made.products(X), y, Huber


# Few samples


def cancer_standardised():
    """Breast cancer (scikit-learn), 569 x 31, standardised."""
    X, y = bundled.load_breast_cancer(return_X_y=True)
    return made.standardised(X), signs(y), 2


def wine_standardised():
    """Wine (scikit-learn), 178 x 14, three classes."""
    X, y = bundled.load_wine(return_X_y=True)
    return made.standardised(X), y, 3


def digits():
    """Digits (scikit-learn), 1,797 x 65, ten classes, pixels in [0, 1]."""
    X, y = bundled.load_digits(return_X_y=True)
    return np.c_[X / 16, np.ones(len(X))], y, 10


def diabetes_above_median():
    """Diabetes (scikit-learn), 442 x 66: above the median or not."""
    X, y = bundled.load_diabetes(return_X_y=True)
    return made.products(X), signs(y > np.median(y)), 2


def moons():
    """1,000 points of two moons, closeness to 100 of them."""
    return *made.two_moons_and_bumps(), 2


def odd_digits():
    """Digits (scikit-learn), 1,797 x 65: odd or even."""
    X, y = bundled.load_digits(return_X_y=True)
    return np.c_[X / 16, np.ones(len(X))], signs(y % 2), 2


# Separable


def blobs():
    """scikit-learn's make_blobs, 5,000 x 31, six classes far apart."""
    X, y = bundled.make_blobs(5000, 30, centers=6, cluster_std=2.0, random_state=0)
    return made.standardised(X), y, 6


def half_spaces():
    """10,000 x 101 dense, labels by the sign of a linear function."""
    X = made.factors(34, 10_000, 100, 60)
    weights = np.random.default_rng(34).standard_normal(X.shape[1])
    return X, signs(X @ weights > 0), 2


def long_texts():
    """2,000 texts of 2 classes, 3,000 words, rows of length 1: more words than texts."""
    X, labels = made.texts(35, 2000, 3000, 2, 120, 0.6)
    return made.unit_rows(X), signs(labels), 2


def sparse_half_spaces():
    """15,000 x 200 sparse normal entries, labels by the sign of a linear function."""
    rng = np.random.default_rng(36)
    X = rng.standard_normal((15_000, 200)) * (rng.random((15_000, 200)) < 0.1)
    return scipy.sparse.csr_array(X), signs(X @ rng.standard_normal(200) > 0), 2


# Badly scaled


def wine_raw():
    """Wine (scikit-learn), 178 x 14 as measured: proline in hundreds, hues around one."""
    X, y = bundled.load_wine(return_X_y=True)
    return np.c_[X, np.ones(len(X))], y, 3


def laboratory():
    """10,000 x 41, units over four decades."""
    X = made.units(38, 10_000, 40, 4.0)
    return X, made.tossed(38, np.log(X), 2.0), 2


def polynomials():
    """6,000 x 19: powers of three variables to the sixth."""
    X = made.powers(39, 6000, 6)
    return X, made.tossed(39, made.standardised(np.sin(7 * X[:, 1:4])), 3.0), 2


def diabetes_raw():
    """Diabetes (scikit-learn), 442 x 11 as measured: above the median or not."""
    X, y = bundled.load_diabetes(return_X_y=True, scaled=False)
    return np.c_[X, np.ones(len(X))], signs(y > np.median(y)), 2


KINDS: dict[str, list[Callable[[], tuple[Any, np.ndarray, Any]]]] = {
    "one-hot": [fungi, households, marriages, diagnoses],
    "sparse binary": [pages, baskets, links, fingerprints],
    "text": [news, abstracts, reviews, tickets],
    "dense standardised": [sensors, particles, hastie, clusters],
    "Poisson": [doctor, claims, cells, bicycles],
    "robust": [
        huber_friedman1,
        logcosh_items,
        cauchy_outliers,
        cauchy_friedman3,
        logcosh_diabetes,
        huber_friedman2,
    ],
    "few samples": [
        cancer_standardised,
        wine_standardised,
        digits,
        diabetes_above_median,
        moons,
        odd_digits,
    ],
    "separable": [blobs, half_spaces, long_texts, sparse_half_spaces],
    "badly scaled": [wine_raw, laboratory, polynomials, diabetes_raw],
}
SETS = {make.__name__.replace("_", "-"): make for sets in KINDS.values() for make in sets}


def names(half: str | None = None, kind: str | None = None) -> list[str]:
    """Of the sets of one half and one kind, or of all."""
    turn = slice(None) if half is None else slice(HALVES.index(half), None, 2)
    return [
        make.__name__.replace("_", "-")
        for of_kind, sets in KINDS.items()
        if kind in (None, of_kind)
        for make in sets[turn]
    ]


@functools.cache
def load(name: str):
    return SETS[name]()


def problem(name: str, l2: float, **options) -> LinearModel:
    return LinearModel(*load(name), l2, **options)
