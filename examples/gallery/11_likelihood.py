"""
11. A likelihood with standard errors
=====================================

A model, its likelihood, bounds, and then the question that follows every estimate: how well is it
known? The data are classic: the millions of revolutions that 23 ball bearings endured
(Lieblein and Zelen, 1956), to which textbooks fit a Weibull distribution of shape 2.10 and scale
81.9.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

import ksdmin

endured = """
    17.88 28.92 33.00 41.52 42.12 45.60 48.40 51.84 51.96 54.12 55.56 67.80
    68.64 68.64 68.88 84.12 93.12 98.64 105.12 105.84 127.92 128.04 173.40
"""
endured = np.array(endured.split(), float)

# %%
# The value is enough to begin with
# ---------------------------------
# The negative logarithm of the likelihood, a sum over the bearings. It exists for positive
# parameters only: ``bounds`` keep every evaluation there, those of differences included.


def minus_log_likelihood(p):
    shape, scale = p
    z = endured / scale
    return -np.sum(np.log(shape / scale) + (shape - 1) * np.log(z) - z**shape)


START, POSITIVE = [1.0, 50.0], [(1e-3, None), (1e-3, None)]
by_differences = ksdmin.minimize(minus_log_likelihood, START, bounds=POSITIVE)
by_differences

# %%
# With ``jac``, or without?
# -------------------------
# Without ``jac`` the gradient is computed from differences: n + 1 values for each gradient, and
# about half of the digits. For two parameters that is cheap. It pays to write ``jac`` (or to use
# :func:`ksdmin.from_jax`, :func:`ksdmin.from_torch` or :func:`ksdmin.from_autograd`) for many
# parameters, and for standard errors.


def jac(p):
    shape, scale = p
    z = endured / scale
    excess = z**shape - 1
    return np.array([-len(z) / shape + excess @ np.log(z), -shape / scale * excess.sum()])


res = ksdmin.minimize(minus_log_likelihood, START, jac=jac, bounds=POSITIVE)
for name, found in {"without jac": by_differences, "with jac": res}.items():
    shape, scale = found.x
    print(f"{name:12} shape {shape:.6f}, scale {scale:.5f}, {found.nfev} values, {found.njev} jac")

# %%
# Why a status?
# -------------
# Unless you set another test, ``success`` means one thing: the gradient at ``res.x``, as far as
# bounds leave it free, is at most ``gtol``. If that cannot be shown, the run says so, and why. The
# parameters may still be as good as they get. Here the tolerance is smaller than differences can
# resolve:

greedy = ksdmin.minimize(minus_log_likelihood, START, bounds=POSITIVE, options={"gtol": 1e-12})
print(ksdmin.Status(greedy.status).name, greedy.x.round(5))
print(greedy.message)

# %%
# With ``jac`` the same tolerance is met. The most common mistake is noticed at ``START``, with a
# warning that names the entries, and has a message of its own, too:

exact = ksdmin.minimize(
    minus_log_likelihood, START, jac=jac, bounds=POSITIVE, options={"gtol": 1e-12}
)
print(exact.message)
with warnings.catch_warnings(record=True) as noticed:
    warnings.simplefilter("always")
    wrong = ksdmin.minimize(minus_log_likelihood, START, jac=lambda p: -jac(p), bounds=POSITIVE)
print(noticed[0].message)
print(wrong.message)

# %%
# Standard errors
# ---------------
# The inverse of the Hessian of the negative log-likelihood, at the minimum, is the covariance of
# the estimates; :func:`ksdmin.covariance` computes it from the exact curvature, or from differences
# of ``jac`` as here. ``res.hess_inv`` is what the run itself has learned of it: it costs nothing
# more, but is rough where the run took few steps.

problem = ksdmin.as_problem(minus_log_likelihood, jac=jac)
covariance = ksdmin.covariance(problem, res.x)
errors = np.sqrt(np.diag(covariance))
learned = np.sqrt(np.diag(res.hess_inv.todense()))
for name, estimate, error, rough in zip(("shape", "scale"), res.x, errors, learned, strict=True):
    print(f"{name} {estimate:6.3f} +- {error:.3f}  (hess_inv: {rough:.3f})")

# %%
# A function of the estimates inherits their errors through its own gradient (the delta method).
# What do nine bearings in ten survive?


def survived_by_90_percent(p):
    return p[1] * (-np.log(0.9)) ** (1 / p[0])


step = 1e-5 * res.x
slope = np.array(
    [
        (survived_by_90_percent(res.x + e) - survived_by_90_percent(res.x - e)) / (2 * e.max())
        for e in np.diag(step)
    ]
)
error = np.sqrt(slope @ covariance @ slope)
print(f"{survived_by_90_percent(res.x):.1f} +- {error:.1f} million revolutions")

# %%
# At a bound
# ----------
# Is it a bearing's age at all that wears it out? If not, the shape is at most 1. The bound holds
# the estimate, the gradient there shows how hard the data pull (it need not vanish), and twice
# the difference of the log-likelihoods says no, clearly: 3.84 would be reached by chance once in
# 20. Standard errors make no sense at a bound: leave out the parameter at the bound.

ageless = ksdmin.minimize(minus_log_likelihood, [0.5, 50.0], jac=jac, bounds=[(0.1, 1), (1, None)])
ratio = 2 * (ageless.fun - res.fun)
print(ageless.success, ageless.x.round(2), ageless.jac.round(1), f"likelihood ratio {ratio:.1f}")

# %%
# The likelihood, and the ellipse of the standard errors
# ------------------------------------------------------
# The shaded region is that of the likelihood ratio, 95%; the ellipse is its quadratic model from
# the covariance. With 23 bearings they differ a little.

shapes, scales = np.meshgrid(np.linspace(1.0, 3.3, 120), np.linspace(55, 112, 120))
surface = [minus_log_likelihood(p) for p in zip(shapes.ravel(), scales.ravel(), strict=True)]
surface = 2 * (np.reshape(surface, shapes.shape) - res.fun)
angle = np.linspace(0, 2 * np.pi, 200)
ellipse = res.x[:, None] + np.linalg.cholesky(covariance) @ (
    np.sqrt(5.99) * np.stack([np.cos(angle), np.sin(angle)])
)
figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
axes.contourf(shapes, scales, surface, levels=[0, 5.99], colors=["C0"], alpha=0.3)
axes.plot(*ellipse, color="C1", label="from the covariance")
axes.plot(*res.x, "o", color="black", label="estimate")
axes.set(title="95% regions for the ball bearings", xlabel="shape", ylabel="scale")
axes.legend()
plt.show()
