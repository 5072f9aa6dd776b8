"""
2. Logistic regression against L-BFGS-B
=======================================

A sum of losses over samples. KSD takes gradients over all of them, but its curvature and its
search look at a part: most of its work costs a fraction of a pass over the data.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import ksdmin

# %%
# The data
# --------
# Is a handwritten digit odd? The 1,797 digits of scikit-learn, and copies moved by one pixel.
# Neighbouring pixels say nearly the same: the problem is ill conditioned.


def digits():
    images, labels = load_digits(return_X_y=True)
    padded = np.pad(images.reshape(-1, 8, 8) / 16, ((0, 0), (1, 1), (1, 1)))
    corners = [(1, 1), (0, 1), (2, 1), (1, 0), (1, 2)]
    X = np.concatenate([padded[:, i : i + 8, j : j + 8] for i, j in corners]).reshape(-1, 64)
    return np.c_[X, np.ones(len(X))], np.tile(np.where(labels % 2, 1.0, -1.0), len(corners))


# %%
# The loss
# --------
# Each function takes the mean over the samples ``idx``. For the whole set ``idx`` is
# ``slice(None)``, so that ``X[idx]`` copies nothing.

L2 = 1e-5


class Logistic:
    def __init__(self, X, y):
        self.X, self.y = X, y

    def fun(self, w, idx):
        X, y = self.X[idx], self.y[idx]
        return np.logaddexp(0, -y * (X @ w)).mean() + L2 / 2 * (w @ w)

    def jac(self, w, idx):
        X, y = self.X[idx], self.y[idx]
        return -(y * expit(-y * (X @ w))) @ X / len(y) + L2 * w

    def hessp(self, w, p, idx):
        X = self.X[idx]
        s = expit(X @ w)
        return (s * (1 - s) * (X @ p)) @ X / len(X) + L2 * p


# %%
# Two methods, one call
# ---------------------
# With ``subsets=N`` both get the same functions. SciPy's methods use the whole set in every
# evaluation. A pass is one look at all samples: a value is one, a gradient one, a product
# two.

GTOL = 1e-6


def by_ksd(loss):
    N, n = loss.X.shape
    return ksdmin.minimize(
        loss.fun, np.zeros(n), jac=loss.jac, hessp=loss.hessp, subsets=N, rng=0, tol=GTOL
    )


def by_lbfgsb(loss):
    """The result, and its curve: (passes, seconds, value) after each iteration."""
    N, n = loss.X.shape
    evaluations, curve, start = 0, [], time.perf_counter()

    def fun(w, idx):
        nonlocal evaluations
        evaluations += 1
        return loss.fun(w, idx)

    def note(intermediate_result):
        curve.append((2 * evaluations, time.perf_counter() - start, intermediate_result.fun))

    res = ksdmin.minimize(
        fun,
        np.zeros(n),
        jac=loss.jac,
        subsets=N,
        method="L-BFGS-B",
        callback=note,
        options={"gtol": GTOL, "ftol": 0, "maxiter": 20_000, "maxfun": 40_000},
    )
    return res, np.array(curve)


def compare(X, y, title):
    loss = Logistic(X, y)
    by_ksd(loss)  # once before the clock: caches, imports
    res, (other, curve) = by_ksd(loss), by_lbfgsb(loss)
    h = res.history
    runs = {
        "KSD": (res, h["passes"], h["seconds"], h["value"]),
        "L-BFGS-B": (other, *curve.T),
    }
    print(f"{title}: {len(X):,} samples, {X.shape[1]} unknowns")
    print(f"{'method':9} {'max |g|':>8} {'iterations':>10} {'passes':>7} {'seconds':>8}")
    for name, (r, passes, seconds, _) in runs.items():
        print(
            f"{name:9} {np.abs(r.jac).max():8.1e} {r.nit:10} {passes[-1]:7.0f} {seconds[-1]:8.3f}"
        )
    least = min(res.fun, other.fun)
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
    for name, (_, passes, seconds, values) in runs.items():
        gap = np.maximum(values - least, 1e-10)
        axes[0].loglog(np.maximum(passes, 1), gap, label=name)
        axes[1].loglog(np.maximum(seconds, 1e-3), gap, label=name)
    axes[0].set(xlabel="passes over the data", ylabel="mean loss above the least found")
    axes[1].set(xlabel="seconds")
    axes[0].legend()
    figure.suptitle(title)


# %%
# Where KSD gains most
# --------------------

compare(*digits(), "Odd or even: handwritten digits")

# %%
# Where it gains little
# ---------------------
# Few samples and strong features: 569 tumours, 30 measurements and their products. There is
# nothing to sample, and a few gradients show L-BFGS-B all of the curvature. KSD notices this, and
# takes steps of that kind itself, which need no product.

X, y = load_breast_cancer(return_X_y=True)
X = PolynomialFeatures(2, include_bias=False).fit_transform(StandardScaler().fit_transform(X))
X = np.c_[X / X.std(axis=0), np.ones(len(X))]
compare(X, np.where(y, 1.0, -1.0), "Malignant or benign: 569 tumours")
plt.show()

# %%
# The first picture is typical of many samples and a badly conditioned Hessian. With few samples, or
# on an easy problem, both need about as many passes, and which one needs fewer changes from problem
# to problem. To see which is better for yours, change one word: ``method="L-BFGS-B"``.
