"""Small data for runs without files: generated curves, scikit-learn's digits, synthetic stand-ins.

They show that every row works, not what a method reaches on the real data.
"""

from __future__ import annotations

import numpy as np

from examples.data import curves
from examples.data.splits import Part, Splits, images


def small_curves() -> Splits:
    """The same curves as in `curves`, fewer."""
    parts = (curves.generate(n, np.random.default_rng(n)) for n in (1_000, 500, 250))
    return Splits(*(images(pixels) for pixels in parts))


def small_digits() -> Splits:
    """scikit-learn's 1,797 digits of 8x8 pixels."""
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(digits))
    everything = Part((pixels / 16).astype(np.float32)[order], digits.astype(np.int64)[order])
    train, test = everything[slice(400, None)], everything[slice(0, 400)]
    return Splits(train, test, held_out=train[:0]).holding_out(200)


def small_digit_images() -> Splits:
    """The same without their labels."""
    splits = small_digits()
    parts = (splits.train, splits.test, splits.held_out)
    return Splits(*(images(part.inputs) for part in parts))


def clusters(inputs: int, classes: int, counts: tuple[int, int, int], seed: int) -> Splits:
    """Synthetic classes around random centres, which overlap a little."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((classes, inputs))
    targets = rng.integers(classes, size=sum(counts))
    spread = 0.25 * np.sqrt(inputs) * rng.standard_normal((len(targets), inputs))
    everything = Part((centres[targets] + spread).astype(np.float32), targets)
    train, test, held_out = np.split(np.arange(len(targets)), np.cumsum(counts)[:2])
    return Splits(everything[train], everything[test], everything[held_out])
