"""
4. Hessian, Gauss-Newton, Fisher: an indefinite problem
=======================================================

The Hessian of a neural net is indefinite: along some directions the loss curves down. Hessian-free
optimisation (HF) solves a linear system with the curvature, so that it needs a positive definite
substitute. KSD searches the subspace with the loss itself: any symmetric matrix will do, the
Hessian too.
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.datasets import load_digits

import ksdmin

# sphinx_gallery_thumbnail_number = 1

# %%
# A saddle point
# --------------
# Two valleys and a ridge between them. On the ridge the gradient points along it, to the saddle
# point. HF goes there and stays: the gradient vanishes. KSD then spends a few products to look for
# negative curvature.


def fun(z):
    return (z[0] ** 2 - 1) ** 2 / 4 + z[1] ** 2 / 2


def jac(z):
    return np.array([z[0] * (z[0] ** 2 - 1), z[1]])


def hessp(z, p):
    return np.array([(3 * z[0] ** 2 - 1) * p[0], p[1]])


figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
x, y = np.meshgrid(np.linspace(-1.6, 1.6, 200), np.linspace(-0.7, 1.7, 200))
axes.contour(x, y, fun(np.array([x, y])), np.geomspace(0.01, 2, 12), cmap="Greys_r", linewidths=0.7)
for method, style in (("hf", "C1s--"), ("ksd", "C0o-")):
    res = ksdmin.minimize(
        fun, [0.0, 1.5], jac=jac, hessp=hessp, method=method, options={"return_all": True}
    )
    print(f"{method:4} f = {res.fun:.6f} at {res.x.round(4) + 0.0}, {res.nit} iterations")
    size = 8 if method == "hf" else 5
    path = np.array(res.allvecs).T
    axes.plot(*path, style, markersize=size, markerfacecolor="none", label=method.upper())
axes.plot([-1, 1], [0, 0], "*", color="black", markersize=12, label="minima", linestyle="none")
axes.set(title="From the ridge between two valleys", xlabel="x", ylabel="y")
axes.legend(loc="upper right")

# %%
# A net
# -----
# An auto-encoder that squeezes a digit's 64 pixels through two numbers. ``curvature`` names the
# matrix:
#
# - ``"gauss-newton"``, the default: the part of the Hessian that is never negative;
# - ``"hessian"``: all of it, indefinite;
# - ``"empirical-fisher"``: the paper's F, the outer products of the samples' gradients;
# - ``"fisher"``: the same with labels drawn from the model.

torch.set_num_threads(1)
pixels = torch.tensor(load_digits().data / 16)
WIDTHS = (64, 32, 16, 2, 16, 32, 64)


def auto_encoder():
    torch.manual_seed(0)
    layers = []
    for k, (fan_in, fan_out) in enumerate(pairwise(WIDTHS), start=1):
        layers.append(torch.nn.Linear(fan_in, fan_out))
        if k not in (3, len(WIDTHS) - 1):  # the code and the output are linear
            layers.append(torch.nn.Tanh())
    return torch.nn.Sequential(*layers).double()


PASSES = 150  # over the data: what each run may spend


def enough(intermediate_result):
    if intermediate_result.record.passes > PASSES:
        raise StopIteration


runs = {}
for curvature in ("gauss-newton", "hessian", "empirical-fisher"):
    for method in ("ksd", "hf"):
        problem = ksdmin.from_torch(
            auto_encoder(),
            torch.nn.MSELoss(reduction="sum"),
            (pixels, pixels),
            curvature=curvature,
            l2=1e-4,
        )
        res = ksdmin.minimize(problem, method=method, rng=0, callback=enough)
        runs[curvature, method] = res.history
        print(f"{curvature:17} {method:4} loss {res.fun:.3f} after {res.passes:.0f} passes")

# %%
# How negative is it?
# -------------------
# The smallest and the largest eigenvalue of the Hessian at the start, by Lanczos: a problem's
# product is a product like any other.

problem = ksdmin.from_torch(
    auto_encoder(), torch.nn.MSELoss(reduction="sum"), (pixels, pixels), curvature="hessian"
)
size = len(problem.x0)
H = LinearOperator((size, size), matvec=lambda v: problem.hessp(problem.x0.numpy(), v))
low, high = eigsh(H, k=2, which="BE", return_eigenvectors=False, v0=np.ones(size))
print(f"Eigenvalues from {low:.3g} to {high:.3g}")

# %%
# Who can use what
# ----------------

colours = {"gauss-newton": "C0", "hessian": "C3", "empirical-fisher": "C2"}
figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
for (curvature, method), history in runs.items():
    style = "-" if method == "ksd" else "--"
    label = f"{method.upper()}, {curvature}"
    axes.semilogy(history["passes"], history["value"], style, color=colours[curvature], label=label)
axes.set(
    title="An auto-encoder of digits",
    xlabel="passes over the data",
    ylabel="squared error a digit + penalty",
    xlim=(0, PASSES),
    ylim=(2.2, 10),
)
axes.set_yticks([2.5, 3, 4, 5, 6, 8, 10], ["2.5", "3", "4", "5", "6", "8", "10"])
axes.set_yticks([], minor=True)
axes.legend()
plt.show()

# %%
# Compare the pair of each colour. With the Hessian, HF's conjugate gradients meet negative
# curvature and have to stop; KSD hardly minds. With Gauss-Newton both do well: it is the default
# for models, and the one to try first.
