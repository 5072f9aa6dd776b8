"""Algorithms 2 and 3 of the paper as printed: dense, float64, indices from 1, columns in V.

Nothing is shared with the package but the inner BFGS, which the paper does not print. The numbers
beside the code are the paper's lines. What the paper leaves open is settled as the package says:
a vector of which orthogonalisation leaves nothing is left out, and where no eigenvalue is
positive the largest magnitude is the maximum, or the identity is H_hat where all vanish.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ksdmin._ksd.steps.search import bfgs

EPS = np.finfo(float).eps
VANISHED = 100 * EPS  # what is left of a vector, relative to it, when nothing is left
NOISE = 30 * EPS  # the relative rounding error of values that the inner BFGS is told


@dataclass(frozen=True)
class Losses:
    """Means over samples, as functions of (theta, idx); without a Fisher diagonal D = I."""

    value: Callable
    gradient: Callable
    hessian: Callable
    fisher: Callable | None = None


@dataclass(frozen=True)
class Iteration:
    """What one iteration of Algorithm 3 makes."""

    V: np.ndarray
    H_bar: np.ndarray
    V_bar: np.ndarray
    theta: np.ndarray


@dataclass(frozen=True)
class Point:
    """phi, evaluated."""

    a: np.ndarray
    value: float
    gradient: np.ndarray


def algorithm_2(H, g, D, d_prev, K):
    """The basis V = [v_1, ..., v_(K+1)] and the Hessian H_bar in its co-ordinates."""
    v, h = {}, np.zeros((K + 2, K + 2))
    v[1] = g / D  # 1
    v[1] = 1 / np.sqrt(v[1] @ v[1]) * v[1]  # 2
    for k in range(1, K + 2):  # 3
        w = H @ v[k]  # 4
        if k < K:  # 5
            u = w / D  # 6
        elif k == K:  # 7
            u = d_prev  # 8
        whole = np.linalg.norm(u)
        for j in 2 * list(range(1, k + 1)):  # 10, and once more against rounding
            h[k, j] = w @ v[j]  # 11
            u = u - (u @ v[j]) * v[j]  # 12
        if k <= K:  # 14
            if np.linalg.norm(u) <= VANISHED * whole:  # not in the paper
                if k < K:  # the Krylov space has no more than k dimensions
                    return algorithm_2(H, g, D, d_prev, k)
                break  # d_prev lies in it
            v[k + 1] = 1 / np.sqrt(u @ u) * u  # 15
    h = h[1 : len(v) + 1, 1 : len(v) + 1]
    return np.column_stack(list(v.values())), np.tril(h) + np.tril(h, -1).T  # 18


def floor_eigenvalues(H_bar, epsilon):
    """H_bar with its eigenvalues floored to epsilon times the maximum."""
    values, vectors = np.linalg.eigh(H_bar)
    maximum = max(values)
    if maximum <= 0:  # not in the paper
        maximum = max(abs(values))
    if maximum == 0:
        return np.eye(len(H_bar))
    return sum(
        max(value, epsilon * maximum) * np.outer(e, e)
        for value, e in zip(values, vectors.T, strict=True)
    )


def algorithm_3(losses, theta, sets, K, *, inner=None, epsilon=1e-4):
    """Krylov Subspace Descent: yields one Iteration for each triple (A, B, C) of `sets`.

    `inner` is how many iterations BFGS may take, K where not given.
    """
    d_prev = np.eye(len(theta))[0]  # 1
    for A, B, C in sets:  # 2 and 3
        g = losses.gradient(theta, A)  # 4
        D = losses.fisher(theta, A) if losses.fisher else np.ones(len(theta))  # 5
        D = np.maximum(D, epsilon * max(D))
        V, H_bar = algorithm_2(losses.hessian(theta, B), g, D, d_prev, K)  # 6
        H_hat = floor_eigenvalues(H_bar, epsilon)  # 7
        cholesky = np.linalg.cholesky(H_hat)  # 8
        V_bar = V @ np.linalg.inv(cholesky).T  # 9

        def phi(a, theta=theta, V_bar=V_bar, C=C):
            at = theta + V_bar @ a
            return Point(a, losses.value(at, C), V_bar.T @ losses.gradient(at, C))

        start = phi(np.zeros(V.shape[1]))  # 10
        optimum, _ = bfgs(phi, start, maxiter=inner or K, noise=NOISE * abs(start.value))  # 11
        d_prev = V_bar @ optimum.a  # 12
        theta = theta + d_prev  # 13
        yield Iteration(V, H_bar, V_bar, theta)
