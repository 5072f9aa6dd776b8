"""The mean logistic (or softmax) loss + l2 / 2 |w|^2 in NumPy, as a user would write it."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, softmax


class Logistic:
    """Two classes: one weight per feature."""

    def __init__(self, X: np.ndarray, y: np.ndarray, l2: float) -> None:
        self.X, self.y, self.l2 = np.ascontiguousarray(X), y.astype(float), l2
        self.n = X.shape[1]

    def fun(self, w: np.ndarray, idx) -> tuple[float, np.ndarray]:
        """The value and the gradient."""
        X, y = self.X[idx], self.y[idx]
        z = X @ w
        value = np.mean(np.logaddexp(0, z) - y * z) + self.l2 / 2 * (w @ w)
        return value, (expit(z) - y) @ X / len(X) + self.l2 * w

    def hess(self, w: np.ndarray, idx) -> np.ndarray:
        """The Hessian."""
        X = self.X[idx]
        p = expit(X @ w)
        H = X.T @ (X * (p * (1 - p) / len(X))[:, None])
        H[np.diag_indices_from(H)] += self.l2
        return H

    def hessp(self, w: np.ndarray, v: np.ndarray, idx) -> np.ndarray:
        """The Hessian times a vector."""
        X = self.X[idx]
        p = expit(X @ w)
        return (p * (1 - p) * (X @ v)) @ X / len(X) + self.l2 * v


class Softmax:
    """Several classes: one weight per class and feature, as a matrix in one vector."""

    def __init__(self, X: np.ndarray, y: np.ndarray, l2: float) -> None:
        self.X, self.l2 = np.ascontiguousarray(X), l2
        self.Y = np.eye(y.max() + 1)[y]
        self.n = X.shape[1] * self.Y.shape[1]

    def fun(self, w: np.ndarray, idx) -> tuple[float, np.ndarray]:
        """The value and the gradient."""
        X, Y = self.X[idx], self.Y[idx]
        Z = X @ w.reshape(Y.shape[1], -1).T
        Z -= Z.max(axis=1, keepdims=True)
        E = np.exp(Z)
        total = E.sum(axis=1, keepdims=True)
        value = (np.log(total).sum() - (Z * Y).sum()) / len(X) + self.l2 / 2 * (w @ w)
        return value, ((E / total - Y).T @ X / len(X)).reshape(-1) + self.l2 * w

    def hess(self, w: np.ndarray, idx) -> np.ndarray:
        """The Hessian, a block for each pair of classes."""
        X = self.X[idx]
        k, d = self.Y.shape[1], X.shape[1]
        P = softmax(X @ w.reshape(k, d).T, axis=1)
        H = np.empty((k, d, k, d))
        for a in range(k):
            for b in range(a + 1):
                weights = P[:, a] * ((a == b) - P[:, b]) / len(X)
                H[a, :, b] = X.T @ (X * weights[:, None])
                H[b, :, a] = H[a, :, b]
        H = H.reshape(k * d, k * d)
        H[np.diag_indices_from(H)] += self.l2
        return H

    def hessp(self, w: np.ndarray, v: np.ndarray, idx) -> np.ndarray:
        """The Hessian times a vector."""
        X, k = self.X[idx], self.Y.shape[1]
        P = softmax(X @ w.reshape(k, -1).T, axis=1)
        PU = P * (X @ v.reshape(k, -1).T)
        PU -= P * PU.sum(axis=1, keepdims=True)
        return (PU.T @ X / len(X)).reshape(-1) + self.l2 * v


def objective(X: np.ndarray, y: np.ndarray, l2: float) -> Logistic | Softmax:
    """The objective of a data set."""
    return (Softmax if y.max() > 1 else Logistic)(X, y, l2)
