"""
3. The sets A, B and C, and how they grow
=========================================

Each iteration of KSD looks at the data three times: at a set A for the gradient, at B for the
curvature, at C for the search in the subspace. A is the whole set, unless that is very large. B and
C are small, drawn again for every iteration, and have no sample in common. They grow when they are
too small for the accuracy that is needed.

By default B and C are a twentieth of the samples (of a net's many samples as little as a fortieth),
but no fewer than 300 unless the model is a net; where that is more than a quarter, they are
everything. Of the 1,797 images here they would have 300, so the tutorial asks for a twentieth.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit
from sklearn.datasets import load_digits

import ksdmin

# sphinx_gallery_thumbnail_number = 2

images, labels = load_digits(return_X_y=True)
X = np.c_[images / 16, np.ones(len(images))]
y = np.where(labels % 2, 1.0, -1.0)
N, n = X.shape
L2 = 1e-4
SMALL = ksdmin.Subsets(N, curvature=1 / 20, search=1 / 20)


def fun(w, idx):
    return np.logaddexp(0, -y[idx] * (X[idx] @ w)).mean() + L2 / 2 * (w @ w)


def jac(w, idx):
    return -(y[idx] * expit(-y[idx] * (X[idx] @ w))) @ X[idx] / len(y[idx]) + L2 * w


def hessp(w, p, idx):
    s = expit(X[idx] @ w)
    return (s * (1 - s) * (X[idx] @ p)) @ X[idx] / len(s) + L2 * p


# %%
# What is drawn
# -------------
# ``subsets=N`` is short for ``subsets=ksdmin.Subsets(N)``. ``SMALL`` above sets the sizes. Your
# functions get the sets as ``idx``: the whole set as ``slice(None)``, a part as a sorted array of
# indices. These are the calls in the first iterations of a run.

calls = []


def watched(kind, function):
    def call(*args):
        calls.append((kind, args[-1]))
        return function(*args)

    return call


ksdmin.minimize(
    watched("value", fun),
    np.zeros(n),
    jac=watched("gradient", jac),
    hessp=watched("product", hessp),
    subsets=SMALL,
    rng=0,
    options={"maxiter": 3},
)

colours = {"value": "C2", "gradient": "C0", "product": "C1"}
figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
for row, (kind, idx) in enumerate(calls):
    samples = np.arange(N)[idx]
    axes.plot(samples, np.full(len(samples), row), ",", color=colours[kind])
for kind, colour in colours.items():
    axes.plot([], [], "s", color=colour, label=kind)
axes.set(
    title="Which samples each call of the first three iterations looks at",
    xlabel="sample",
    ylabel="call",
)
axes.invert_yaxis()
axes.legend(loc="upper right", framealpha=1)

# %%
# Full rows are gradients and values over A. The thin rows between them are products over B, then
# values and gradients over C: many calls, few samples.
#
# How they grow
# -------------
# What the search gains on C should be gained on A, too. If it is not, B and C are too small, and
# the next ones are twice as large, or everything if that is more than a half. So a run begins with
# cheap iterations and ends with exact ones, by itself. Fixed sizes, as in the paper
# (``ksdmin.PAPER``), limit the accuracy.

budget = {"maxiter": 60}
runs = {
    "default: sets grow": ksdmin.minimize(
        fun, np.zeros(n), jac=jac, hessp=hessp, subsets=SMALL, rng=0, tol=1e-7
    ),
    "PAPER: sets fixed": ksdmin.minimize(
        fun,
        np.zeros(n),
        jac=jac,
        hessp=hessp,
        subsets=SMALL,
        rng=0,
        options=ksdmin.PAPER | budget,
    ),
    "everything, always": ksdmin.minimize(
        fun,
        np.zeros(n),
        jac=jac,
        hessp=hessp,
        subsets=ksdmin.Subsets(N, gradient=1.0, curvature=1.0, search=1.0, disjoint=False),
        tol=1e-7,
    ),
}
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for name, res in runs.items():
    h = res.history
    left.semilogy(h["passes"], h["gradient_norm"], label=name)
    right.step(h["iteration"], h["size_B"], where="post", label=name)
left.set(xlabel="passes over the data", ylabel="max |gradient| on all samples")
left.set_xlim(0, 400)
right.set(xlabel="iteration", ylabel="samples in B", yscale="log")
right.set_xlim(0, 40)
left.legend()
figure.suptitle("Sets that grow reach any accuracy")

# %%
# Sizes of your own
# -----------------
# Shares of the samples are floats, counts are integers. A may be a part, too, where a pass over
# all data is too much for one iteration (by default it is beyond 80,000 samples, for nets beyond
# up to 160,000). Each iteration then draws another A and judges the step on it: samples that the
# gradient has not seen. A grows when a step gains too little because the slope on the old A misled
# it.

subsets = ksdmin.Subsets(N, gradient=0.1, curvature=0.1, search=100)
res = ksdmin.minimize(fun, np.zeros(n), jac=jac, hessp=hessp, subsets=subsets, rng=0)
for name in ("size_A", "size_B", "size_C"):
    print(name, *dict.fromkeys(res.history[name].tolist()))
print(res.message)

# %%
# Sets of your own
# ----------------
# A callable ``(iteration, rng) -> (A, B, C)``, or an iterable of triples. What is in them is
# handed to your functions as it is: indices, file names, arrays. ``full`` names the whole set, so
# that success can be tested. Here: sets with the same number of every digit.

EVERYTHING = np.arange(N)
by_digit = [np.flatnonzero(labels == digit) for digit in range(10)]


def balanced(iteration, rng):
    each = 10 * 2 ** min(iteration // 5, 3)  # they may grow as you like
    both = [rng.choice(members, 2 * each, replace=False) for members in by_digit]
    B, C = (
        np.sort(np.concatenate(part)) for part in zip(*(np.split(b, 2) for b in both), strict=True)
    )
    return EVERYTHING, B, C


res = ksdmin.minimize(
    fun,
    np.zeros(n),
    jac=jac,
    hessp=hessp,
    subsets=ksdmin.Subsets(balanced, full=EVERYTHING),
    rng=0,
)
print(f"{res.message} {res.nit} iterations, {res.passes:.0f} passes")
plt.show()
