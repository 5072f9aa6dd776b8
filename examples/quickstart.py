"""KSD and L-BFGS-B side by side: softmax regression on handwritten digits.

The data ship with scikit-learn: 1,797 digits of 8x8 pixels, here with copies moved by one pixel
up, down, left and right, 8,985 in all. Neighbouring pixels say nearly the same, so the problem is
ill conditioned. It is written as anybody would write it in NumPy: the mean loss over the samples
`idx`, its gradient, and the product of its Hessian with a vector.

Prints a table and saves ``quickstart.png``. Takes some five seconds.
"""

import time

import matplotlib
import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

import ksdmin

matplotlib.use("Agg")  # no screen needed
import matplotlib.pyplot as plt

L2 = 1e-4
GTOL = 1e-6  # both methods stop when no entry of the gradient is larger


def nudged_digits():
    """The pixels, with a column of ones; the labels, one column a digit."""
    images, labels = load_digits(return_X_y=True)
    padded = np.pad(images.reshape(-1, 8, 8) / 16, ((0, 0), (1, 1), (1, 1)))
    corners = [(1, 1), (0, 1), (2, 1), (1, 0), (1, 2)]
    X = np.concatenate([padded[:, i : i + 8, j : j + 8] for i, j in corners]).reshape(-1, 64)
    return np.c_[X, np.ones(len(X))], np.tile(np.eye(10)[labels], (len(corners), 1))


X, Y = nudged_digits()
N = len(X)


def scores(x, idx):
    return X[idx] @ x.reshape(X.shape[1], Y.shape[1])


def loss(x, idx):
    likelihoods = np.sum(Y[idx] * log_softmax(scores(x, idx), axis=1), axis=1)
    return -likelihoods.mean() + L2 / 2 * (x @ x)


def gradient(x, idx):
    P = softmax(scores(x, idx), axis=1)
    return (X[idx].T @ (P - Y[idx])).ravel() / len(P) + L2 * x


def hessian_product(x, p, idx):
    P = softmax(scores(x, idx), axis=1)
    R = P * scores(p, idx)
    return (X[idx].T @ (R - P * R.sum(axis=1, keepdims=True))).ravel() / len(P) + L2 * p


def run_ksd(x0):
    """Krylov Subspace Descent: every iteration draws its own samples for curvature and search."""
    options = {"gtol": GTOL, "progress": True}
    res = ksdmin.minimize(
        loss, x0, jac=gradient, hessp=hessian_product, subsets=N, rng=0, options=options
    )
    return res, res.history["passes"], res.history["value"], res.history["seconds"]


def run_lbfgsb(x0):
    """SciPy's L-BFGS-B, through the same call: it sees all samples at every evaluation."""
    passes, values, seconds = [0], [loss(x0, slice(None))], [0.0]
    evaluations = 0

    def counted(x, idx):
        nonlocal evaluations
        evaluations += 1
        return loss(x, idx)

    def note(intermediate_result):
        passes.append(2 * evaluations)  # a gradient comes with every value
        values.append(intermediate_result.fun)
        seconds.append(time.perf_counter() - start)

    options = {"gtol": GTOL, "ftol": 0.0, "maxiter": 10_000, "maxfun": 20_000}
    start = time.perf_counter()
    res = ksdmin.minimize(
        counted, x0, jac=gradient, subsets=N, method="L-BFGS-B", callback=note, options=options
    )
    return res, np.array(passes), np.array(values), np.array(seconds)


def minimum(x):
    """The least value to full precision, by SciPy's trust-krylov from a point close to it."""
    return ksdmin.minimize(
        loss,
        x,
        jac=gradient,
        hessp=hessian_product,
        subsets=N,
        method="trust-krylov",
        options={"gtol": 1e-10},
    ).fun


@threadpool_limits.wrap(limits=1)  # so that times compare on a busy machine too
def main():
    x0 = np.zeros(X.shape[1] * Y.shape[1])
    print(f"Softmax regression: {N:,} samples, {x0.size} unknowns, l2 = {L2:g}")
    runs = {"KSD": run_ksd(x0), "L-BFGS-B": run_lbfgsb(x0)}
    best = minimum(min((res for res, *_ in runs.values()), key=lambda res: res.fun).x)

    print(
        f"\n{'method':10} {'gap':>9} {'|g|_inf':>9} {'nit':>5} {'evals':>6} {'products':>8}"
        f" {'passes':>7} {'seconds':>7}  success"
    )
    for name, (res, passes, _, seconds) in runs.items():
        print(
            f"{name:10} {res.fun - best:9.1e} {np.abs(res.jac).max():9.1e} {res.nit:5}"
            f" {res.nfev + res.njev:6} {res.get('nhev', 0):8} {passes[-1]:7.0f} {seconds[-1]:7.1f}"
            f"  {res.success}"
        )

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for name, (_, passes, values, _) in runs.items():
        axes.semilogy(passes, np.maximum(values - best, 1e-15), marker=".", label=name)
    axes.set(
        title=f"Softmax regression on {N:,} digits",
        xlabel="passes over the data",
        ylabel="mean loss above its minimum",
    )
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig("quickstart.png", dpi=150)
    print("\ngap: the loss above its minimum")
    print("passes: a value or a gradient over all samples is 1, a product 2, over a part its share")
    print("The curves are in quickstart.png")


if __name__ == "__main__":
    main()
