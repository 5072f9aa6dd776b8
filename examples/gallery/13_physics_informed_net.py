"""
13. A physics-informed net, ten times closer than L-BFGS
========================================================

A net solves a differential equation: its parameters are fitted until the equation holds at points
inside the domain, and the boundary condition at points of its border. Both are sums of squares, and
:func:`ksdmin.from_torch` takes them as blocks of residuals.
"""

import math
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import torch
from torch import nn

import ksdmin

# sphinx_gallery_thumbnail_number = 2

# %%
# The equation
# ------------
# Poisson's, on a square: :math:`u_{xx} + u_{yy} = -2 \pi^2 \sin \pi x \, \sin \pi y`, and
# :math:`u = 0` on the border. The solution is known, :math:`\sin \pi x \, \sin \pi y`: here it says
# how close a net comes. Everything is float64, as the last digits matter.


def solution(points):
    return torch.sin(math.pi * points).prod(dim=1, keepdim=True)


def new_net():
    torch.manual_seed(0)
    layers = nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)
    return nn.Sequential(*layers).double()


generator = torch.Generator().manual_seed(0)
inside = torch.rand(200, 2, generator=generator, dtype=torch.float64)
along = torch.linspace(0, 1, 16, dtype=torch.float64)[:15]
zero, one = torch.zeros_like(along), torch.ones_like(along)
sides = (along, zero), (one, along), (1 - along, one), (zero, 1 - along)
border = torch.cat([torch.stack(side, dim=1) for side in sides])

# %%
# Residuals
# ---------
# What should be zero, one row per point. ``torch.func.jvp`` of ``torch.func.jvp`` is the second
# derivative along a direction.


def second_derivative(net, points, axis):
    direction = torch.zeros_like(points)
    direction[:, axis] = 1

    def slope(points):
        return torch.func.jvp(net, (points,), (direction,))[1]

    return torch.func.jvp(slope, (points,), (direction,))[1]


def equation(net, points):
    laplacian = second_derivative(net, points, 0) + second_derivative(net, points, 1)
    return laplacian + 2 * math.pi**2 * solution(points)


def condition(net, points):
    return net(points)


# %%
# The run
# -------
# The objective is the sum of the two means of squares. There is no rate to choose, no history
# length, no schedule. ``gtol`` is 0, so that only ``maxiter`` ends the run: the gradient of a mean
# of squares is as small as its residuals are, and the default of 1e-5 might be reached while there
# is still something to gain.

axis = torch.linspace(0, 1, 101, dtype=torch.float64)
grid = torch.cartesian_prod(axis, axis)


@torch.no_grad()
def error(net):
    """The root mean square of the difference from the solution."""
    return float((net(grid) - solution(grid)).square().mean().sqrt())


net = new_net()
problem = ksdmin.from_torch(net, residuals=[(equation, inside), (condition, border)])
curves = {"KSD": []}


def note(intermediate_result):
    problem.load(intermediate_result.x)
    curves["KSD"].append((intermediate_result.record.seconds, error(net)))


res = ksdmin.minimize(problem, rng=0, callback=note, options={"gtol": 0, "maxiter": 40})
problem.load(res.x)
by_ksd = net
print(res)
print(f"error {error(by_ksd):.1e}")

# %%
# L-BFGS
# ------
# What such nets are usually trained with: torch's own, with a strong Wolfe search and a long
# history. It gets 400 iterations for our 40.

by_lbfgs = net = new_net()
optimizer = torch.optim.LBFGS(
    net.parameters(),
    max_iter=10,
    max_eval=1000,
    history_size=100,
    line_search_fn="strong_wolfe",
    tolerance_grad=0,
    tolerance_change=0,
)


def closure():
    optimizer.zero_grad()
    value = equation(net, inside).square().mean() + condition(net, border).square().mean()
    value.backward()
    return value


curves["torch L-BFGS"], start = [], time.perf_counter()
for _ in range(40):
    optimizer.step(closure)
    curves["torch L-BFGS"].append((time.perf_counter() - start, error(net)))

ratio = error(by_lbfgs) / error(by_ksd)
for name, curve in curves.items():
    print(f"{name:12}: error {curve[-1][1]:.1e} after {curve[-1][0]:.1f} s")
print(f"KSD is {ratio:.0f} times closer")

# %%

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for name, curve in curves.items():
    axes.semilogy(*zip(*curve, strict=True), label=f"{name}: {curve[-1][1]:.0e}")
axes.set(
    title="Poisson's equation by a net of 337 parameters",
    xlabel="seconds",
    ylabel="root mean square error",
)
axes.legend(title="method: last error")

# %%
# Most steps of KSD are damped Gauss-Newton steps from the Jacobian of the 260 residuals, corrected
# by the true residuals (:doc:`/steps`). L-BFGS has to learn the same curvature from its gradients.
#
# The solution, and what is missing
# ---------------------------------

figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
with torch.no_grad():
    shown = {
        "the net of KSD": by_ksd(grid),
        f"its error: {error(by_ksd):.0e}": by_ksd(grid) - solution(grid),
        f"that of L-BFGS: {error(by_lbfgs):.0e}": by_lbfgs(grid) - solution(grid),
    }
for ax, (title, values) in zip(axes, shown.items(), strict=True):
    image = values.reshape(101, 101).T.numpy()
    limit = abs(image).max()
    low, colours = (0, "viridis") if ax is axes[0] else (-limit, "RdBu")
    drawn = ax.imshow(
        image, origin="lower", extent=(0, 1, 0, 1), vmin=low, vmax=limit, cmap=colours
    )
    ax.set(title=title, xticks=(0, 1), yticks=(0, 1))
    figure.colorbar(drawn, ax=ax, shrink=0.8, format="%.0e" if ax is not axes[0] else None)
plt.show()

# %%
# Points, digits, bounds
# ----------------------
# - **New points on the way:** the data of a block may be a function of the number of the iteration,
#   ``(equation, points)`` with ``def points(epoch)``, which draws with ``epoch // 50`` as its seed
#   for the same points in 50 iterations. The border stays whole.
# - **float32:** where rounding hides what further steps gain, a run goes on in float64 by itself;
#   ``precision="float32"`` switches that off. On a GPU nothing else changes.
# - **An unknown coefficient** is one more parameter of the module; ``bounds`` keep it where it
#   makes sense. ``examples/physics`` has such a problem, and others.
#
# The same in jax
# ---------------
# The residuals are functions of the parameters, of any form, and of a batch of points. These are
# the points and the start from above.

jax.config.update("jax_enable_x64", True)


def u(weights, point):
    for W, b in weights[:-1]:
        point = jnp.tanh(W @ point + b)
    W, b = weights[-1]
    return (W @ point + b)[0]


def equation_jax(weights, points):
    laplacian = jax.vmap(lambda p: jnp.trace(jax.hessian(u, argnums=1)(weights, p)))(points)
    return laplacian + 2 * jnp.pi**2 * jnp.sin(jnp.pi * points).prod(axis=1)


def condition_jax(weights, points):
    return jax.vmap(lambda p: u(weights, p))(points)


linear = [layer for layer in new_net() if isinstance(layer, nn.Linear)]
weights = [tuple(jnp.asarray(p.detach().numpy()) for p in layer.parameters()) for layer in linear]
blocks = [(equation_jax, inside.numpy()), (condition_jax, border.numpy())]
problem_jax = ksdmin.from_jax(residuals=blocks, params=weights)
res_jax = ksdmin.minimize(problem_jax, rng=0, options={"gtol": 0, "maxiter": 40})
found = jax.vmap(lambda p: u(problem_jax.unflatten(res_jax.x), p))(grid.numpy())
error_jax = float(jnp.sqrt(jnp.mean((found - solution(grid)[:, 0].numpy()) ** 2)))
print(f"error {error_jax:.1e}, loss {res_jax.fun:.1e}")
