"""
9. Your own curvature, your own preconditioner
==============================================

The solver asks a problem for three things: values, gradients, and a product ``v -> H v``. What H
is remains your choice: the Hessian, a part of it, a bound, a matrix that you computed once. So is
the diagonal that preconditions the Krylov space.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse.linalg import LinearOperator
from scipy.special import expit
from sklearn.datasets import load_breast_cancer

import ksdmin

# %%
# A badly scaled problem
# ----------------------
# Logistic regression on 569 tumours and 30 measurements, in the units in which they were taken:
# areas of hundreds beside fractions of a hundredth. One should scale them; here we do not.

X, y = load_breast_cancer(return_X_y=True)
X, y = np.c_[X, np.ones(len(X))], np.where(y, 1.0, -1.0)
n, l2 = X.shape[1], 1e-4
x0 = np.zeros(n)
GTOL = 1e-4


def fun(w):
    return np.logaddexp(0, -y * (X @ w)).mean() + l2 / 2 * (w @ w)


def jac(w):
    return -(y * expit(-y * (X @ w))) @ X / len(y) + l2 * w


def hessp(w, p):
    s = expit(X @ w)
    return (s * (1 - s) * (X @ p)) @ X / len(y) + l2 * p


scales = np.sqrt((X**2).mean(axis=0))
print(f"columns from {scales.min():.2g} to {scales.max():.2g}")
runs = {"no preconditioner": ksdmin.minimize(fun, x0, jac=jac, hessp=hessp, tol=GTOL)}

# %%
# A diagonal
# ----------
# ``precond`` is a positive diagonal that roughly approximates the Hessian's: n numbers, or a
# function of x. It need not be accurate; a factor of ten hardly matters. ``precond=`` is there for
# plain functions and for models (``from_torch`` and the others have the Fisher diagonal by
# default).


def diagonal(w):
    s = expit(X @ w)
    return (s * (1 - s)) @ X**2 / len(y) + l2


runs["diagonal"] = ksdmin.minimize(fun, x0, jac=jac, hessp=hessp, precond=diagonal, tol=GTOL)

# %%
# A matrix of your own
# --------------------
# ``hess`` may return any symmetric matrix: dense, sparse, or a ``LinearOperator``. Here Böhning's
# bound: :math:`X^T X / 4` is above the Hessian whatever w is. It is computed once, and a product
# costs n^2 in place of two passes over the data.

bound = X.T @ X / (4 * len(y)) + l2 * np.eye(n)
operator = LinearOperator((n, n), matvec=lambda v: bound @ v, dtype=float)
runs["Böhning's bound"] = ksdmin.minimize(
    fun, x0, jac=jac, hess=lambda w: operator, precond=np.diag(bound), tol=GTOL
)

# %%
# A problem of your own
# ---------------------
# If that is not enough, write a class. Any object with ``value``,
# ``value_and_gradient`` and ``curvature`` is a problem (:class:`ksdmin.Problem`): no base class.
# ``curvature`` returns a product that keeps what it computed once, here the weights; ``idx``
# names the samples. What else a method must know is declared as ``traits``
# (:class:`ksdmin.Traits`): here, that there is a diagonal.


class LogisticRegression:
    x0 = np.zeros(n)
    subsets = ksdmin.Subsets(len(y), curvature=0.5, search=0.5)
    traits = ksdmin.Traits(has_diagonal=True)

    def value(self, w, idx):
        return np.logaddexp(0, -y[idx] * (X[idx] @ w)).mean() + l2 / 2 * (w @ w)

    def value_and_gradient(self, w, idx, *, diagonal=False):
        margin = y[idx] * (X[idx] @ w)
        value = np.logaddexp(0, -margin).mean() + l2 / 2 * (w @ w)
        gradient = -(y[idx] * expit(-margin)) @ X[idx] / len(margin) + l2 * w
        if not diagonal:
            return value, gradient
        s = expit(margin)
        return value, gradient, (s * (1 - s)) @ X[idx] ** 2 / len(s) + l2

    def curvature(self, w, idx):
        rows = X[idx]  # once for all products
        s = expit(rows @ w)
        weights = s * (1 - s) / len(s)
        return lambda v: (weights * (rows @ v)) @ rows + l2 * v


assert isinstance(LogisticRegression(), ksdmin.Problem)
runs["verbs of one's own, with sets"] = ksdmin.minimize(LogisticRegression(), rng=0, tol=GTOL)

# %%
# What they need
# --------------

other = ksdmin.minimize(
    fun,
    x0,
    jac=jac,
    method="L-BFGS-B",
    options={"gtol": GTOL, "ftol": 0, "maxfun": 100_000, "maxiter": 100_000},
)
print(f"{'run':30} {'f':>9} {'max |g|':>8} {'nfev':>5} {'nhev':>5} {'passes':>6}")
for name, r in runs.items():
    print(
        f"{name:30} {r.fun:9.6f} {np.abs(r.jac).max():8.1e} {r.nfev:5} {r.nhev:5} {r.passes:6.0f}"
    )
print(
    f"{'L-BFGS-B':30} {other.fun:9.6f} {np.abs(other.jac).max():8.1e} {other.nfev:5} {0:5}"
    f" {2 * other.nfev:6}"
)

# %%

figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
for name, r in runs.items():
    axes.semilogy(r.history["passes"], r.history["gradient_norm"], label=name)
axes.axhline(GTOL, color="grey", linewidth=0.8, linestyle="--")
axes.set(
    title="569 tumours, measurements in their own units",
    xlabel="passes over the data (products count two, the bound's too)",
    ylabel="max |gradient|",
)
axes.legend()
plt.show()
