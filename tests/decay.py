"""A fit of three parameters: residuals, their derivatives, and a start."""

import numpy as np

T = np.linspace(0.0, 3.0, 25)
DATA = 2.5 * np.exp(-1.3 * T) + 0.4 + 0.05 * np.cos(7 * T)
START = np.array([1.0, 0.3, 0.0])


def decay(x):
    return x[0] * np.exp(-x[1] * T) + x[2] - DATA


def slopes_of_decay(x):
    e = np.exp(-x[1] * T)
    return np.stack([e, -x[0] * T * e, np.ones_like(T)], 1)
