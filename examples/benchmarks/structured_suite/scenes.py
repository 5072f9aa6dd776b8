"""A bundle adjustment that is made here: cameras, points, and what the cameras see of them.

Cameras have nine unknowns, as in *Bundle Adjustment in the Large* (Agarwal, Snavely, Seitz and
Szeliski 2010): a rotation vector, a translation, a focal length and two radial distortions. They
go along a street; each point is seen by the cameras near it. Some observations are wrong matches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

Array = Any

CAMERA, POINT = 9, 3
REACH = 12  # how many cameras before and after it may see a point
PIXELS, OUTLIERS, OFF = 0.5, 0.03, 40.0  # noise; share of wrong matches, and how far off those are


@dataclass(frozen=True)
class Scene:
    """Observations, and where to start.

    The unknowns are those of the cameras, one after the other, and then those of the points.
    """

    cameras: int
    points: int
    seen_by: Array  # the camera of each observation
    seen: Array  # its point
    observed: Array  # where, in pixels
    x0: Array

    @property
    def residual_count(self) -> int:
        """How many residuals there are: two for an observation."""
        return 2 * len(self.seen)

    def split(self, x: Array) -> tuple[Array, Array]:
        """Cameras and points."""
        n = CAMERA * self.cameras
        return x[:n].reshape(-1, CAMERA), x[n:].reshape(-1, POINT)

    def residuals(self, x: Array) -> Array:
        """Where points appear, less where they were seen."""
        cameras, points = self.split(x)
        own = cameras[self.seen_by]
        inner = np.einsum("kij,kj->ki", rotations(cameras)[self.seen_by], points[self.seen])
        inner += own[:, 3:6]
        flat = -inner[:, :2] / inner[:, 2:]
        squares = (flat**2).sum(1)
        bent = own[:, 6] * (1 + squares * (own[:, 7] + squares * own[:, 8]))
        return (bent[:, None] * flat - self.observed).ravel()

    def jacobian(self, x: Array) -> csr_array:
        """Its derivatives: twelve entries in each row."""
        cameras, points = self.split(x)
        own, R, X = cameras[self.seen_by], rotations(cameras), points[self.seen]
        turns = R[self.seen_by]
        inner = np.einsum("kij,kj->ki", turns, X) + own[:, 3:6]
        depth = inner[:, 2:]
        flat = -inner[:, :2] / depth
        squares = (flat**2).sum(1)
        f, k1, k2 = own[:, 6], own[:, 7], own[:, 8]
        factor = 1 + squares * (k1 + squares * k2)
        # d image / d flat, and d flat / d inner
        slope = 2 * f * (k1 + 2 * squares * k2)
        of_flat = slope[:, None, None] * flat[:, :, None] * flat[:, None, :]
        of_flat[:, [0, 1], [0, 1]] += (f * factor)[:, None]
        flat_of_inner = np.zeros((len(X), 2, 3))
        flat_of_inner[:, [0, 1], [0, 1]] = -1 / depth
        flat_of_inner[:, :, 2] = -flat / depth
        of_inner = of_flat @ flat_of_inner
        of_point = of_inner @ turns
        entries = np.empty((len(X), 2, CAMERA + POINT))
        entries[:, :, :3] = -of_point @ (cross(X) @ right_jacobians(cameras)[self.seen_by])
        entries[:, :, 3:6] = of_inner
        entries[:, :, 6] = factor[:, None] * flat
        entries[:, :, 7] = (f * squares)[:, None] * flat
        entries[:, :, 8] = (f * squares**2)[:, None] * flat
        entries[:, :, 9:] = of_point
        columns, starts = self._places
        shape = self.residual_count, len(x)
        return csr_array((entries.ravel(), columns, starts), shape=shape)

    @cached_property
    def _places(self) -> tuple[Array, Array]:
        """The columns of the entries of the Jacobian, and where each row begins."""
        of_camera = CAMERA * self.seen_by[:, None] + np.arange(CAMERA)
        of_point = POINT * self.seen[:, None] + np.arange(POINT) + CAMERA * self.cameras
        columns = np.hstack([of_camera, of_point]).astype(np.int32)
        starts = np.arange(self.residual_count + 1, dtype=np.int32) * (CAMERA + POINT)
        return np.repeat(columns, 2, axis=0).ravel(), starts

    @property
    def sparsity(self) -> csr_array:
        """Where the Jacobian has entries."""
        columns, starts = self._places
        ones = np.ones(len(columns), dtype=np.int8)
        return csr_array((ones, columns, starts), shape=(self.residual_count, len(self.x0)))


def rotations(cameras: Array) -> Array:
    """The matrix of each rotation vector (Rodrigues)."""
    angle = np.linalg.norm(cameras[:, :3], axis=1)[:, None, None]
    K = cross(cameras[:, :3])
    square = angle**2
    small = square < 1e-12
    safe = np.where(small, 1.0, angle)
    one = np.where(small, 1 - square / 6, np.sin(angle) / safe)
    two = np.where(small, 0.5 - square / 24, (1 - np.cos(angle)) / safe**2)
    return np.eye(3) + one * K + two * (K @ K)


def right_jacobians(cameras: Array) -> Array:
    """How a small change of the rotation vector turns, in the frame before the turn."""
    angle = np.linalg.norm(cameras[:, :3], axis=1)[:, None, None]
    K = cross(cameras[:, :3])
    square = angle**2
    small = square < 1e-8
    safe = np.where(small, 1.0, angle)
    one = np.where(small, 0.5 - square / 24, (1 - np.cos(angle)) / safe**2)
    two = np.where(small, 1 / 6 - square / 120, (safe - np.sin(angle)) / safe**3)
    return np.eye(3) - one * K + two * (K @ K)


def cross(v: Array) -> Array:
    """The matrices [v]x of vectors, the rows of v."""
    K = np.zeros((len(v), 3, 3))
    K[:, 0, 1], K[:, 0, 2], K[:, 1, 2] = -v[:, 2], v[:, 1], -v[:, 0]
    return K - K.transpose(0, 2, 1)


def street(cameras: int, points: int, views: int, seed: int) -> Scene:
    """Cameras along a street, and points on both of its sides; each is seen by about `views`."""
    rng = np.random.default_rng(seed)
    length = 0.5 * cameras
    where = np.column_stack(
        [
            rng.uniform(0, length, points),
            rng.uniform(-2, 2, points),
            rng.uniform(4, 9, points),
        ]
    )
    along = np.linspace(0, length, cameras)
    true = np.zeros((cameras, CAMERA))
    true[:, :3] = rng.uniform(-0.2, 0.2, (cameras, 3))
    centre = np.column_stack([along, rng.normal(0, 0.2, (cameras, 2))])
    true[:, 3:6] = -np.einsum("kij,kj->ki", rotations(true), centre)
    true[:, 6] = 800 * (1 + rng.normal(0, 0.02, cameras))
    true[:, 7], true[:, 8] = rng.normal(0, 0.02, cameras), rng.normal(0, 0.005, cameras)
    around = np.rint(where[:, :1] / length * (cameras - 1)).astype(int)
    candidates = np.clip(around - REACH, 0, max(cameras - 2 * REACH - 1, 0))
    candidates = candidates + np.arange(min(cameras, 2 * REACH + 1))
    away = np.abs(where[:, :1] - along[candidates])
    near = np.where(away > 0.5 * REACH, np.inf, away + rng.exponential(1.0, candidates.shape))
    count = np.clip(rng.poisson(views - 2, points) + 2, 2, np.isfinite(near).sum(1))
    order = np.take_along_axis(candidates, np.argsort(near, axis=1), axis=1)
    seen = np.repeat(np.arange(points), count)
    seen_by = order[np.arange(order.shape[1]) < count[:, None]]
    x = np.concatenate([true.ravel(), where.ravel()])
    scene = Scene(cameras, points, seen_by, seen, np.zeros((len(seen), 2)), x)
    observed = scene.residuals(x).reshape(-1, 2) + rng.normal(0, PIXELS, (len(seen), 2))
    wrong = rng.random(len(seen)) < OUTLIERS
    observed[wrong] += rng.normal(0, OFF, (int(wrong.sum()), 2))
    start = true.copy()
    start[:, :3] += rng.normal(0, 0.01, (cameras, 3))
    centre = centre + rng.normal(0, 0.1, (cameras, 3))
    start[:, 3:6] = -np.einsum("kij,kj->ki", rotations(start), centre)
    start[:, 6] *= 1 + rng.normal(0, 0.03, cameras)
    start[:, 7:] = 0
    x0 = np.concatenate([start.ravel(), (where + rng.normal(0, 0.1, where.shape)).ravel()])
    return Scene(cameras, points, seen_by, seen, observed, x0)


def scene(residuals: int, seed: int = 0) -> Scene:
    """One with about so many residuals: five views of a point, a camera for 500 observations."""
    observations = residuals // 2
    return street(max(8, observations // 500), observations // 5, 5, seed)
