"""Means of losses over samples, in numpy, with their derivatives: arguments of `minimize`."""

import numpy as np
from scipy.special import expit

WHOLE = slice(None)


def logistic(X, y, l2=0.0):
    """The logistic loss of a linear model; labels are -1 and 1."""

    def fun(w, idx=WHOLE):
        return float(np.logaddexp(0, -y[idx] * (X[idx] @ w)).mean() + l2 / 2 * w @ w)

    def jac(w, idx=WHOLE):
        rows, labels = X[idx], y[idx]
        return -(labels * expit(-labels * (rows @ w))) @ rows / len(labels) + l2 * w

    def hessp(w, p, idx=WHOLE):
        rows = X[idx]
        s = expit(rows @ w)
        return (s * (1 - s) * (rows @ p)) @ rows / len(rows) + l2 * p

    return {"fun": fun, "jac": jac, "hessp": hessp}


def squares(X, y):
    """Half the squared error of a linear model."""

    def fun(w, idx=WHOLE):
        return float(np.mean((X[idx] @ w - y[idx]) ** 2) / 2)

    def jac(w, idx=WHOLE):
        rows = X[idx]
        return (rows @ w - y[idx]) @ rows / len(rows)

    def hessp(w, p, idx=WHOLE):
        rows = X[idx]
        return (rows @ p) @ rows / len(rows)

    return {"fun": fun, "jac": jac, "hessp": hessp}
