"""Sums of losses of 65,000 samples and more, where B and C begin with less than 1/K of them.

That linear models begin with all samples in A was decided on these sets.
"""

from __future__ import annotations

import functools

import numpy as np

from examples.benchmarks.regression_suite import loss_data as made
from examples.benchmarks.regression_suite.linear_model import LinearModel
from examples.benchmarks.regression_suite.loss_functions import Huber, LogCosh, Poisson
from examples.benchmarks.regression_suite.synthetic_data import coin_tosses, decades

L2 = (1e-4, 1e-7)


def journeys():
    """150,000 x 120 one-hot, with many rare values."""
    X, scores = made.attributes(41, 150_000, [2, 3, 5, 8, 12, 30, 60], 6, 3.0)
    return X, coin_tosses(np.random.default_rng(41), scores), 2


def orders():
    """100,000 x 201, 8 ones in a row; few labels are positive."""
    X, scores = made.popular_items(42, 100_000, 200, 8.0, 1.0, -2.0)
    return X, coin_tosses(np.random.default_rng(42), scores), 2


def stars():
    """250,000 x 31 dense, from 6 hidden factors."""
    X = made.factors(43, 250_000, 30, 6)
    return X, made.tossed(43, X, 3.0), 2


def calls():
    """120,000 x 70 one-hot, counts of about 1."""
    X, _ = made.attributes(44, 120_000, [2, 7, 24, 12, 5, 20], 5, 1.0)
    return X, made.counted(44, X, 0.8, 0.0), Poisson


def meters():
    """400,000 x 16 dense with outliers, Huber's loss."""
    X = made.factors(45, 400_000, 15, 5)
    return X, made.measured(45, X, 0.5, 0.05), Huber


def headlines():
    """80,000 texts of 4 classes, 800 words, rows of length 1."""
    X, labels = made.texts(46, 80_000, 800, 4, 12, 0.8)
    return made.unit_rows(X), labels, 4


def tests_of_blood():
    """65,000 x 21 in units that differ by four decades, log cosh."""
    X = made.units(47, 65_000, 20, 4.0)
    return X, made.measured(47, made.standardised(X), 0.5, 0.02), LogCosh


def axes():
    """100,000 x 60 whose principal axes have scales from 10 down to 1e-2."""
    return decades(100_000, 60, 3)


SETS = {
    make.__name__.replace("_", "-"): make
    for make in (journeys, orders, stars, calls, meters, headlines, tests_of_blood, axes)
}


@functools.cache
def load(name: str):
    return SETS[name]()


def problem(name: str, l2: float, **options) -> LinearModel:
    return LinearModel(*load(name), l2, **options)
