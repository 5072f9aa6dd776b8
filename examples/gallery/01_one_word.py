"""
1. From L-BFGS-B to KSD in one word
===================================

You call :func:`scipy.optimize.minimize`. Change the name of the method, and the call runs Krylov
Subspace Descent. Nothing else changes.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.optimize

import ksdmin

# sphinx_gallery_thumbnail_number = 2

# %%
# What you have
# -------------
# A function and its gradient. Here: photons counted in 200 channels by a detector that blurs, and
# the smooth spectrum that explains them best. The unknowns are logarithms, so that intensities
# are positive; the penalty on the second differences makes the problem ill conditioned.

n, penalty = 200, 100.0
channels = np.arange(n)
truth = 20 + 200 * np.exp(-0.5 * ((channels - 60) / 4) ** 2)
truth += 120 * np.exp(-0.5 * ((channels - 120) / 10) ** 2)
blur = np.exp(-0.5 * ((channels[:, None] - channels) / 3) ** 2)
blur /= blur.sum(axis=1, keepdims=True)
counts = np.random.default_rng(0).poisson(blur @ truth)
bend = np.diff(np.eye(n), 2, axis=0)


def fun(x):
    rate = blur @ np.exp(x)
    misfit = rate - counts + counts * np.log(np.maximum(counts, 1) / rate)
    return misfit.sum() + penalty / 2 * np.sum((bend @ x) ** 2)


def jac(x):
    rate = blur @ np.exp(x)
    return np.exp(x) * (blur.T @ (1 - counts / rate)) + penalty * bend.T @ (bend @ x)


x0 = np.full(n, np.log(counts.mean()))
res = scipy.optimize.minimize(fun, x0, jac=jac, method="L-BFGS-B")
print(f"success {res.success}, f = {res.fun:.8f}, max |gradient| = {np.abs(res.jac).max():.1e}")

# %%
# One word
# --------
# :func:`ksdmin.minimize` takes the same arguments. ``"ksd"`` is its default method. It takes the
# names of SciPy's methods, too, so that one word compares them.

res = ksdmin.minimize(fun, x0, jac=jac, method="ksd")
print(f"success {res.success}, f = {res.fun:.8f}, max |gradient| = {np.abs(res.jac).max():.1e}")

# %%
# The result shows itself:

res

# %%
# It is SciPy's ``OptimizeResult``: ``res.x``, ``res["x"]``, ``res.success`` and so on.
# ``success`` is True only where the gradient at ``res.x`` passes the test (``gtol``, 1e-5 by
# default). L-BFGS-B, by default, also calls it success when the function has stopped falling
# fast; compare the gradients.

figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
axes.plot(channels, counts, ".", color="grey", label="counts")
axes.plot(channels, truth, color="C2", label="truth")
axes.plot(channels, np.exp(res.x), color="C0", label="found by KSD")
axes.set(title="A spectrum behind a blur", xlabel="channel", ylabel="photons")
axes.legend()

# %%
# A Hessian, if you have one
# --------------------------
# If products with the Hessian are cheap, pass them as ``hessp`` (or ``hess``). Otherwise KSD takes
# differences of gradients along the few directions that it needs, as above.


def hessp(x, p):
    e, rate = np.exp(x), blur @ np.exp(x)
    data = e * p * (blur.T @ (1 - counts / rate)) + e * (
        blur.T @ (counts / rate**2 * (blur @ (e * p)))
    )
    return data + penalty * bend.T @ (bend @ p)


res = ksdmin.minimize(fun, x0, jac=jac, hessp=hessp)
print(f"{res.nit} iterations, {res.nfev} values, {res.njev} gradients, {res.nhev} products")

# %%
# KSD is also a method for SciPy, and for libraries that call SciPy:

res = scipy.optimize.basinhopping(
    fun, x0, niter=2, minimizer_kwargs={"method": ksdmin.ksd, "jac": jac}, seed=0
)
print(f"basinhopping: f = {res.fun:.8f}")

# %%
# Side by side
# ------------
# Work is counted as one for a value, one for a gradient, two for a product with the Hessian:
# about what they cost where derivatives are automatic. All run until the largest entry of the
# gradient is below 1e-6 (``ftol=0`` keeps L-BFGS-B from stopping before).

GTOL = 1e-6


class Counted:
    """The same functions, which note after how much work the gradient was how large."""

    def __init__(self):
        self.work, self.curve = 0, []

    def fun(self, x):
        self.work += 1
        return fun(x)

    def jac(self, x):
        self.work += 1
        g = jac(x)
        self.curve.append((self.work, np.abs(g).max()))
        return g

    def hessp(self, x, p):
        self.work += 2
        return hessp(x, p)


runs = {"KSD": Counted(), "KSD, gradients only": Counted(), "L-BFGS-B": Counted()}
f = runs["KSD"]
ksdmin.minimize(f.fun, x0, jac=f.jac, hessp=f.hessp, tol=GTOL)
f = runs["KSD, gradients only"]
ksdmin.minimize(f.fun, x0, jac=f.jac, tol=GTOL)
f = runs["L-BFGS-B"]
options = {"gtol": GTOL, "ftol": 0, "maxiter": 10_000, "maxfun": 100_000}
ksdmin.minimize(f.fun, x0, jac=f.jac, method="L-BFGS-B", options=options)

figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
for (name, f), colour in zip(runs.items(), ("C0", "C9", "C1"), strict=True):
    work, norms = np.array(f.curve).T
    least = np.minimum.accumulate(norms)
    axes.semilogy(work, least, color=colour, label=f"{name}: {f.work}")
axes.axhline(GTOL, color="grey", linewidth=0.8, linestyle="--")
axes.set(
    title="The way to a small gradient",
    xlabel="work (values + gradients + 2 products)",
    ylabel="smallest max |gradient| so far",
)
axes.legend(title="method: work in all")
plt.show()

# %%
# What to expect
# --------------
# On plain functions the work is about that of L-BFGS-B, the time longer where the function is as
# cheap as this one (L-BFGS-B is compiled), and the result more reliable. A product counts two here
# and a difference of gradients one, so exact products do not always save work. What KSD saves is
# passes over data, if the function is a sum over samples: see the next tutorials.
# :doc:`/benchmarks` has the numbers over hundreds of problems.
