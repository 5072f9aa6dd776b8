"""Generated data sets, the same ones every time."""

from __future__ import annotations

import numpy as np
import scipy.sparse


def decades(samples: int = 20_000, features: int = 200, decades: int = 4):
    """Generated: normal samples whose principal axes have scales from 10 down to 1e-3.

    Every axis matters to the labels as much as any other, so none can be left alone.
    """
    rng = np.random.default_rng(0)
    axes, _ = np.linalg.qr(rng.standard_normal((features, features)))
    scales = 10.0 * np.logspace(0, -decades, features)
    Z = rng.standard_normal((samples, features))
    scores = Z @ rng.normal(0.0, 0.2, features)
    return (Z * scales) @ axes.T, coin_tosses(rng, scores), 2


def zipf(documents: int = 20_000, words: int = 20_000, length: int = 80):
    """Generated: texts as bags of words with Zipf's frequencies, rows of unit length.

    A word is worth 1 + log(count); the labels come from a linear model of all words.
    """
    rng = np.random.default_rng(0)
    frequencies = 1.0 / (np.arange(words) + 3.0)
    lengths = 1 + rng.poisson(length * rng.lognormal(-0.125, 0.5, documents))
    drawn = rng.choice(words, lengths.sum(), p=frequencies / frequencies.sum())
    texts = np.repeat(np.arange(documents), lengths)
    X = scipy.sparse.csr_array((np.ones(len(drawn)), (texts, drawn)), (documents, words))
    X.sum_duplicates()
    X.data = 1.0 + np.log(X.data)
    X.data /= np.repeat(np.sqrt(X.multiply(X).sum(axis=1)), np.diff(X.indptr))
    scores = X @ rng.normal(0.0, 3.0, words)
    return X, coin_tosses(rng, scores), 2


def coin_tosses(rng: np.random.Generator, scores: np.ndarray) -> np.ndarray:
    """Labels of -1 or 1 with the probabilities of a logistic model."""
    return np.where(rng.random(len(scores)) < 1 / (1 + np.exp(-scores)), 1.0, -1.0)
