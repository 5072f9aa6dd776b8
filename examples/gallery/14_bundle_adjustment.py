"""
14. A bundle adjustment: sparse least squares
=============================================

Cameras have seen points, and neither is known exactly. Both are adjusted until the points appear
where they were seen: least squares with many unknowns, where each residual depends on one camera
and one point. Here a camera moves along a street; it has a position and a direction in the plane,
and sees at which angle a point appears. One in thirty observations is a wrong match.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import csr_array

import ksdmin

rng = np.random.default_rng(0)
cameras, points, views = 30, 400, 6
truth = np.column_stack([np.arange(cameras), np.zeros(cameras), rng.normal(0, 0.1, cameras)])
places = np.column_stack([rng.uniform(0, cameras, points), rng.uniform(3, 8, points)])
nearest = np.argsort(np.abs(places[:, :1] - truth[:, 0]) + rng.exponential(1, (points, cameras)))
seen_by, seen = nearest[:, :views].ravel(), np.repeat(np.arange(points), views)

# %%
# Residuals and their sparse Jacobian
# -----------------------------------
# Five entries in a row: three of the camera, two of the point.


def angles(x):
    camera, point = x[: 3 * cameras].reshape(-1, 3)[seen_by], x[3 * cameras :].reshape(-1, 2)[seen]
    return np.arctan2(*(point - camera[:, :2]).T) - camera[:, 2]


def residuals(x):
    return 1000 * (angles(x) - observed)


def jacobian(x):
    camera, point = x[: 3 * cameras].reshape(-1, 3)[seen_by], x[3 * cameras :].reshape(-1, 2)[seen]
    u, v = (point - camera[:, :2]).T
    across, along = v / (u**2 + v**2), -u / (u**2 + v**2)
    entries = np.column_stack([-across, -along, -np.ones_like(u), across, along])
    of_camera, of_point = 3 * seen_by[:, None], 3 * cameras + 2 * seen[:, None]
    columns = np.hstack([of_camera + np.arange(3), of_point + np.arange(2)])
    rows = np.repeat(np.arange(len(seen)), 5)
    return csr_array((1000 * entries.ravel(), (rows, columns.ravel())), shape=(len(seen), x.size))


true = np.concatenate([truth.ravel(), places.ravel()])
observed = angles(true) + 0.001 * rng.normal(size=len(seen))
wrong = rng.random(len(seen)) < 1 / 30
observed[wrong] += rng.normal(0, 0.2, wrong.sum())
x0 = true + 0.1 * rng.normal(size=true.size)

# %%
# The fit
# -------
# Nothing says which unknowns are points. The pattern of the Jacobian does: the points share no
# residual with each other, and are eliminated; what is left has 90 unknowns. A robust loss bounds
# what wrong matches can do.

res = ksdmin.least_squares(residuals, x0, jacobian, loss="soft_l1", ftol=1e-8)
print(res.message)
print(f"cost {res.history[0].value:.0f} -> {res.cost:.1f}, {res.njev} Jacobians")

# %%
# The positions are known up to a motion and a scale of the whole scene, which do not change how
# well the observations are met.

figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for name, x in {"start": x0, "adjusted": res.x}.items():
    off = np.abs(residuals(x))[~wrong]
    axes.hist(
        off, np.geomspace(0.01, 1000, 60), alpha=0.6, label=f"{name}: median {np.median(off):.2g}"
    )
axes.set(xscale="log", xlabel="residual of a right match (milliradians)", ylabel="observations")
axes.legend()
plt.show()
