"""
8. A jax function: which measurements matter
============================================

A plain function written in jax: compiled, with exact products of the Hessian by automatic
differentiation, on the device where its arrays are. The example is a Gaussian process with a
length scale for each of its inputs. The function to minimise, minus its log marginal likelihood,
takes the Cholesky factor of a matrix at every evaluation, so it is worth needing few of them.
"""

import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

import ksdmin

jax.config.update("jax_enable_x64", True)  # double precision: jax's own switch

# sphinx_gallery_thumbnail_number = 2

# %%
# The function
# ------------
# 250 patients, ten measurements each. The unknowns are logarithms: of the inverse length scales,
# of the amplitude, of the noise. A weak prior keeps what the data say nothing about.

data = load_diabetes(scaled=True)
names = ["age", "sex", "body mass", "pressure", *(f"serum {k}" for k in range(1, 7))]
X = jnp.asarray(data.data[:250] / data.data[:250].std(axis=0))
y = jnp.asarray((data.target[:250] - data.target[:250].mean()) / data.target[:250].std())


def fun(x):
    scaled = X * jnp.exp(x[:10])
    squares = jnp.sum(scaled**2, axis=1)
    distances = squares[:, None] + squares - 2 * scaled @ scaled.T
    K = jnp.exp(2 * x[10] - distances / 2) + jnp.exp(2 * x[11]) * jnp.eye(len(y))
    L = jnp.linalg.cholesky(K)
    a = jax.scipy.linalg.solve_triangular(L, y, lower=True)
    prior = jnp.sum((x[:10] + 2) ** 2) / 20
    return (a @ a / 2 + jnp.log(jnp.diag(L)).sum() + prior) / len(y)


x0 = jnp.concatenate([jnp.full(10, -1.0), jnp.zeros(2)])

# %%
# The problem
# -----------
# Nothing but the function and the start. L-BFGS-B and the others get the same compiled function.

problem = ksdmin.from_jax(fun, x0=x0)
GTOL = 1e-6
methods = {
    "ksd": {"gtol": GTOL},
    "L-BFGS-B": {"gtol": GTOL, "ftol": 0},
    "BFGS": {"gtol": GTOL},
    "trust-krylov": {"gtol": GTOL},
}
results = {}
for method, options in methods.items():
    ksdmin.minimize(problem, method=method, options={**options, "maxiter": 3})  # compiles
    start = time.perf_counter()
    results[method] = ksdmin.minimize(problem, method=method, options=options)
    results[method].seconds = time.perf_counter() - start

print(f"{'method':13} {'f':>9} {'max |g|':>8} {'f, g':>5} {'products':>8} {'seconds':>7}")
for method, r in results.items():
    norm = float(jnp.abs(r.jac).max())
    print(f"{method:13} {r.fun:9.6f} {norm:8.1e} {r.nfev:5} {r.get('nhev', 0):8} {r.seconds:7.2f}")

# %%
# The result is a jax array, where the problem's arrays are:

res = results["ksd"]
print(type(res.x).__name__, res.x.dtype, res.x.device)

# %%
# A product costs about two gradients, so that the work is values + gradients + 2 products:

work = {m: r.nfev + r.njev + 2 * r.get("nhev", 0) for m, r in results.items()}
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
bars = axes.barh(list(work), list(work.values()), color=["C0", *["C7"] * 3])
axes.bar_label(bars, padding=3)
axes.invert_yaxis()
axes.set(title=f"Work until max |gradient| <= {GTOL:g}", xlabel="values + gradients + 2 products")

# %%
# What it has learnt
# ------------------
# A short length scale means that the prediction changes with that measurement.

weight = np.exp(np.asarray(res.x[:10]))
order = np.argsort(weight)
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.barh(np.array(names)[order], weight[order])
axes.set(
    title="What the progression of diabetes depends on",
    xlabel="inverse length scale (per standard deviation)",
)
plt.show()

# %%
# Models
# ------
# With a loss and data, ``from_jax(model, loss, (inputs, targets), params=...)`` takes a model as
# in tutorial 6, Gauss-Newton and Fisher matrices included. Sets of samples are padded, so that
# jax compiles each function once, not for every size.
