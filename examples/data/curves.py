"""CURVES (Hinton and Salakhutdinov 2006), regenerated from its published recipe.

The original file is no longer available. Three points define a curve through a 28x28 image, drawn
as 60 blobs of ink and blurred. The spread of the points and the blur are not published; they are
chosen so that the error of the mean image (16.9; published 16.96), the test error of 18 principal
components (5.9; published 5.90) and the mean ink (0.043) agree. `statistics` measures these.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.interpolate import CubicSpline
from scipy.ndimage import convolve

from examples.data.splits import Splits, images

SIDE = 28
COUNTS = {"train": 20_000, "test": 10_000, "held_out": 2_000}
SEED = 2006
LOWEST, HIGHEST = 2.0, 26.0  # of all coordinates
APART = 2.0  # an x from the one before
X_MEANS, X_SPREAD = np.array([7.0, 14.0, 21.0]), 1.3
Y_MEAN, Y_SPREAD = 14.0, 5.5
DOTS, INK = 60, 2.0
BLUR, GAIN, TIMES = 0.1774, 0.6293, 4

Pixels = npt.NDArray[np.float32]


def load() -> Splits:
    """20,000 curves to train on, 10,000 to test on, and 2,000 more that are held out."""
    streams = np.random.SeedSequence(SEED).spawn(len(COUNTS))
    return Splits(
        **{
            name: images(generate(count, np.random.default_rng(stream)))
            for (name, count), stream in zip(COUNTS.items(), streams, strict=True)
        }
    )


def generate(count: int, rng: np.random.Generator) -> Pixels:
    """`count` images, one per row, in [0, 1]."""
    x, y = control_points(count, rng)
    knots, dots = np.arange(1.0, 4.0), np.linspace(1.0, 3.0, DOTS)
    curve_x, curve_y = (CubicSpline(knots, points, axis=1)(dots) for points in (x, y))
    image = blurred(drawn(curve_x, curve_y))
    return np.clip(image, 0, 1).astype(np.float32).reshape(count, -1)


def control_points(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Three points per curve, drawn again until they are apart and within the image."""
    x, y = np.empty((count, 3)), np.empty((count, 3))
    wanted = np.arange(count)
    while len(wanted):
        x[wanted] = X_MEANS + X_SPREAD * rng.standard_normal((len(wanted), 3))
        y[wanted] = Y_MEAN + Y_SPREAD * rng.standard_normal((len(wanted), 3))
        both = np.hstack([x[wanted], y[wanted]])
        inside = ((both >= LOWEST) & (both <= HIGHEST)).all(axis=1)
        apart = (np.diff(x[wanted], axis=1) >= APART).all(axis=1)
        wanted = wanted[~(inside & apart)]
    return x, y


def drawn(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Every dot shares its ink bilinearly among the four closest pixels."""
    image = np.zeros((len(x), SIDE, SIDE))
    which = np.broadcast_to(np.arange(len(x))[:, None], x.shape)
    # A curve may bulge out of the image between its points: its ink stays at the edge.
    x, y = (np.clip(points, 0, SIDE - 1.001) for points in (x, y))
    left, low = x.astype(int), y.astype(int)
    for dx in (0, 1):
        for dy in (0, 1):
            share = np.abs(1 - dx - (x - left)) * np.abs(1 - dy - (y - low))
            np.add.at(image, (which, low + dy, left + dx), INK * share)
    return image


def blurred(image: np.ndarray) -> np.ndarray:
    """Convolved four times with a 3x3 kernel."""
    a = BLUR
    kernel = (
        GAIN
        * (1 + a)
        * np.array([[a / 12, a / 6, a / 12], [a / 6, 1 - a, a / 6], [a / 12, a / 6, a / 12]])
    )
    for _ in range(TIMES):
        image = convolve(image, kernel[None], mode="constant")
    return image


def statistics(train: Pixels, test: Pixels, components: int = 18) -> dict[str, float]:
    """What is published of the original: see the top of this file."""
    mean = train.mean(axis=0)
    _, directions = np.linalg.eigh(np.cov(train.T))
    principal, rest = directions[:, -components:], test - mean
    left = rest - rest @ principal @ principal.T
    return {
        "error of the mean image": float((rest**2).sum(axis=1).mean()),
        "error of the principal components": float((left**2).sum(axis=1).mean()),
        "mean ink": float(train.mean()),
    }
