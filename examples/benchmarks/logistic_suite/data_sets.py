"""Data of 50 to 1,000 unknowns, from what scikit-learn carries or generates.

Half of them was set aside before the first experiment: `HELD_OUT` was run once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn import datasets
from sklearn.kernel_approximation import RBFSampler
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

Data = tuple[np.ndarray, np.ndarray]


def _standardised(X: np.ndarray, y: np.ndarray) -> Data:
    """Features of mean zero and variance one, and a column of ones; classes from zero on."""
    X = StandardScaler().fit_transform(X)
    X = X[:, X.std(axis=0) > 0]
    return np.column_stack([X, np.ones(len(X))]), np.unique(y, return_inverse=True)[1]


def _squares(X: np.ndarray, y: np.ndarray, degree: int = 2) -> Data:
    return _standardised(PolynomialFeatures(degree, include_bias=False).fit_transform(X), y)


def _kernel(X: np.ndarray, y: np.ndarray, features: int, gamma: float) -> Data:
    sampler = RBFSampler(gamma=gamma, n_components=features, random_state=0)
    return _standardised(sampler.fit_transform(X), y)


def _generated(samples: int, features: int, classes: int = 2) -> Data:
    made = datasets.make_classification(
        samples,
        features - 1,
        n_informative=features // 2,
        n_redundant=features // 5,
        n_classes=classes,
        class_sep=0.5,
        random_state=0,
    )
    return _standardised(*made)


def _digits() -> Data:
    return datasets.load_digits(return_X_y=True)


def _above_median() -> Data:
    X, y = datasets.load_diabetes(return_X_y=True)
    return X, y > np.median(y)


DEVELOPED_ON: dict[str, Callable[[], Data]] = {
    "generated 1,000 x 60": lambda: _generated(1000, 60),
    "generated 20,000 x 100": lambda: _generated(20_000, 100),
    "generated 10,000 x 500": lambda: _generated(10_000, 500),
    "digits, 10 classes": lambda: _standardised(*_digits()),
    "breast cancer, squares": lambda: _squares(*datasets.load_breast_cancer(return_X_y=True)),
    "hastie, squares": lambda: _squares(*datasets.make_hastie_10_2(12_000, random_state=0)),
}
HELD_OUT: dict[str, Callable[[], Data]] = {
    "digits, odd or even, 500 kernel features": lambda: _kernel(
        _digits()[0], _digits()[1] % 2, 500, 0.001
    ),
    "wine, squares, 3 classes": lambda: _squares(*datasets.load_wine(return_X_y=True)),
    "iris, degree 4, 3 classes": lambda: _squares(*datasets.load_iris(return_X_y=True), degree=4),
    "diabetes, squares": lambda: _squares(*_above_median()),
    "moons, 200 kernel features": lambda: _kernel(
        *datasets.make_moons(20_000, noise=0.3, random_state=0), 200, 1.0
    ),
    "blobs, 20 classes": lambda: _standardised(
        *datasets.make_blobs(5000, 30, centers=20, cluster_std=8.0, random_state=0)
    ),
    "quantiles, squares, 3 classes": lambda: _squares(
        *datasets.make_gaussian_quantiles(n_samples=30_000, n_features=12, random_state=0)
    ),
}
SETS = {**DEVELOPED_ON, **HELD_OUT}
