"""Sparse and structured least squares of other kinds than a bundle adjustment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array, eye_array, kron, vstack
from scipy.sparse.linalg import LinearOperator

Array = Any


@dataclass(frozen=True)
class Structured:
    """A problem: residuals, their Jacobian (None: by differences), and where to start."""

    name: str
    residuals: Callable[[Array], Array]
    jacobian: Callable[[Array], Any] | None
    x0: Array
    loss: str = "linear"
    sparsity: Any = None


def pose_graph(poses: int, seed: int = 0) -> Structured:
    """Where a robot was on its round trips, from measured moves and from places seen again.

    A pose is (x, y, angle). One in twenty of the places seen again is wrong.
    """
    rng = np.random.default_rng(seed)
    angle = np.linspace(0, 12 * np.pi, poses)
    true = np.column_stack([10 * np.cos(angle), 10 * np.sin(angle), angle + np.pi / 2])
    true[:, :2] += np.cumsum(rng.normal(0, 0.01, (poses, 2)), axis=0)
    lap = poses // 6
    again = rng.choice(poses - lap, poses // 3, replace=False)
    first = np.concatenate([np.arange(poses - 1), again])
    second = np.concatenate([np.arange(1, poses), again + lap])
    measured = moves(true, first, second)
    measured += rng.normal(0, 1, measured.shape) * [0.02, 0.02, 0.005]
    wrong = poses - 1 + np.flatnonzero(rng.random(len(again)) < 0.05)
    measured[wrong, :2] += rng.normal(0, 3, (len(wrong), 2))
    precision = np.array([50, 50, 200.0])
    start = np.zeros_like(true)  # by dead reckoning
    start[0] = true[0]
    for i in range(1, poses):
        x, y, a = start[i - 1]
        u, v, turn = measured[i - 1]
        c, s = np.cos(a), np.sin(a)
        start[i] = x + c * u - s * v, y + s * u + c * v, a + turn

    def residuals(z: Array) -> Array:
        here = z.reshape(-1, 3)
        off = (moves(here, first, second) - measured) * precision
        return np.concatenate([off.ravel(), 100 * (here[0] - true[0])])

    edges = np.arange(len(first))
    rows = 3 * edges[:, None, None] + np.arange(3)[:, None]

    def jacobian(z: Array) -> csr_array:
        here = z.reshape(-1, 3)
        c, s = np.cos(here[first, 2]), np.sin(here[first, 2])
        dx, dy = (here[second, :2] - here[first, :2]).T
        of_second = np.zeros((len(edges), 3, 3))
        of_second[:, 0, 0], of_second[:, 0, 1] = c, s
        of_second[:, 1, 0], of_second[:, 1, 1], of_second[:, 2, 2] = -s, c, 1
        of_first = -of_second
        of_first[:, 0, 2], of_first[:, 1, 2] = -s * dx + c * dy, -c * dx - s * dy
        parts = []
        for pose, block in ((first, of_first), (second, of_second)):
            columns = np.broadcast_to(3 * pose[:, None, None] + np.arange(3), block.shape)
            own = np.broadcast_to(rows, block.shape).ravel()
            data = (block * precision[:, None]).ravel()
            parts.append(csr_array((data, (own, columns.ravel())), shape=(3 * len(edges), z.size)))
        fixed = csr_array((np.full(3, 100.0), (range(3), range(3))), shape=(3, z.size))
        return csr_array(vstack([parts[0] + parts[1], fixed]))

    return Structured(f"pose graph, {poses} poses", residuals, jacobian, start.ravel(), "huber")


def moves(poses: Array, first: Array, second: Array) -> Array:
    """The second pose of each pair as the first one sees it."""
    d = poses[second] - poses[first]
    c, s = np.cos(poses[first, 2]), np.sin(poses[first, 2])
    return np.column_stack([c * d[:, 0] + s * d[:, 1], -s * d[:, 0] + c * d[:, 1], d[:, 2]])


def source_of_equation(side: int, seed: int = 0) -> Structured:
    """u and the source of -laplace(u) + u^3 = source on a square, from u at a quarter of points."""
    rng = np.random.default_rng(seed)
    n, h = side * side, 1 / (side + 1)
    line = diags_array(
        [-np.ones(side - 1), 2 * np.ones(side), -np.ones(side - 1)], offsets=[-1, 0, 1]
    )
    laplace = csr_array(kron(line, eye_array(side)) + kron(eye_array(side), line)) / h**2
    t = np.linspace(h, 1 - h, side)
    X, Y = np.meshgrid(t, t)
    true = (5 * np.sin(np.pi * X) * np.sin(2 * np.pi * Y)).ravel()
    source = laplace @ true + true**3
    seen = np.sort(rng.choice(n, n // 4, replace=False))
    data = true[seen] + rng.normal(0, 0.01, len(seen))
    looks = csr_array((np.ones(len(seen)), (range(len(seen)), seen)), shape=(len(seen), n))
    along = diags_array([-np.ones(side - 1), np.ones(side)], offsets=[1, 0])
    rough = csr_array(vstack([kron(along, eye_array(side)), kron(eye_array(side), along)]))

    def residuals(z: Array) -> Array:
        u, f = z[:n], z[n:]
        equation = (laplace @ u + u**3 - f) / 10
        return np.concatenate([equation, 100 * (u[seen] - data), 1e-3 * (rough @ f)])

    def jacobian(z: Array) -> csr_array:
        u = z[:n]
        equation = laplace + diags_array(3 * u**2)
        rows = [
            csr_array(_beside(equation / 10, -eye_array(n) / 10)),
            csr_array(_beside(100 * looks, csr_array((len(seen), n)))),
            csr_array(_beside(csr_array((rough.shape[0], n)), 1e-3 * rough)),
        ]
        return csr_array(vstack(rows))

    x0 = np.concatenate([np.zeros(n), 0 * source])
    return Structured(f"source of an equation, {side} x {side}", residuals, jacobian, x0)


def _beside(left: Any, right: Any) -> csr_array:
    return csr_array(vstack([csr_array(left).T, csr_array(right).T]).T)


def blurred(side: int, seed: int = 0) -> Structured:
    """A signal between 0 and 1, seen through a blur and an s-curve: products with J alone."""
    rng = np.random.default_rng(seed)
    n = side
    t = np.linspace(0, 1, n)
    true = 2 * np.sin(6 * t) + np.sin(25 * t)
    kernel = np.exp(-0.5 * (np.fft.fftfreq(n) * n / (0.01 * n)) ** 2)
    passes = np.fft.rfft(kernel / kernel.sum())

    def blur(v: Array) -> Array:
        return np.fft.irfft(np.fft.rfft(v) * passes, n)

    data = np.tanh(blur(true)) + rng.normal(0, 0.01, n)

    def residuals(x: Array) -> Array:
        return np.concatenate([100 * (np.tanh(blur(x)) - data), x[1:] - x[:-1]])

    def jacobian(x: Array) -> LinearOperator:
        slope = 100 / np.cosh(blur(x)) ** 2

        def times(v: Array) -> Array:
            v = np.ravel(v)
            return np.concatenate([slope * blur(v), v[1:] - v[:-1]])

        def transposed(w: Array) -> Array:
            w = np.ravel(w)
            u, d = w[:n], w[n:]
            out = blur(slope * u)
            out[1:] += d
            out[:-1] -= d
            return out

        return LinearOperator((2 * n - 1, n), matvec=times, rmatvec=transposed, dtype=float)

    return Structured(f"blurred signal, {side}", residuals, jacobian, np.zeros(n))


def completed_matrix(side: int, seed: int = 0) -> Structured:
    """Two factors of a matrix of rank three, from a twentieth of its entries; some are wrong."""
    rng = np.random.default_rng(seed)
    rank, seen = 3, np.argwhere(rng.random((side, 2 * side)) < 0.05)
    i, j = seen.T
    left, right = rng.normal(size=(side, rank)), rng.normal(size=(2 * side, rank))
    data = (left[i] * right[j]).sum(1) + rng.normal(0, 0.01, len(seen))
    wrong = rng.random(len(seen)) < 0.02
    data[wrong] += rng.normal(0, 5, int(wrong.sum()))
    rows = np.repeat(np.arange(len(seen)), 2 * rank)
    columns = np.hstack(
        [rank * i[:, None] + np.arange(rank), rank * (side + j[:, None]) + np.arange(rank)]
    )

    def parts(x: Array) -> tuple[Array, Array]:
        factors = x.reshape(-1, rank)
        return factors[:side], factors[side:]

    def residuals(x: Array) -> Array:
        U, V = parts(x)
        return np.concatenate([10 * ((U[i] * V[j]).sum(1) - data), 0.01 * x])

    def jacobian(x: Array) -> csr_array:
        U, V = parts(x)
        entries = 10 * np.hstack([V[j], U[i]])
        shape = len(seen), x.size
        J = csr_array((entries.ravel(), (rows, columns.ravel())), shape=shape)
        return csr_array(vstack([J, 0.01 * eye_array(x.size)]))

    x0 = rng.normal(size=3 * side * rank)
    return Structured(f"matrix of rank 3, {side} x {2 * side}", residuals, jacobian, x0, "soft_l1")
