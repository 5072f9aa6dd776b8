"""
16. A physics-informed net with many points
===========================================

A net that satisfies an equation at some points need not satisfy it between them. More points help,
and cost more: twenty thousand points and a few hundred parameters make a Jacobian of millions of
numbers. KSD takes its steps from a sample of the points, as large as it needs.
"""

import time

import matplotlib.pyplot as plt
import torch
from torch import nn

import ksdmin

# sphinx_gallery_thumbnail_number = 2

# %%
# The equation
# ------------
# Poisson's on a square, :math:`u_{xx} + u_{yy} = f`, with the values of the solution on the border.
# The solution is a bump, narrow enough to fall between few points.

torch.set_default_dtype(torch.float64)
NARROW, CENTRE = 20.0, torch.tensor([0.3, -0.2])


def solution(points):
    return torch.exp(-NARROW * (points - CENTRE).square().sum(dim=1))


def source(points):
    distance = (points - CENTRE).square().sum(dim=1)
    return 4 * NARROW * (NARROW * distance - 1) * solution(points)


def second_derivative(net, points, axis):
    direction = torch.zeros_like(points)
    direction[:, axis] = 1

    def slope(points):
        return torch.func.jvp(net, (points,), (direction,))[1]

    return torch.func.jvp(slope, (points,), (direction,))[1][:, 0]


def equation(net, points):
    laplacian = second_derivative(net, points, 0) + second_derivative(net, points, 1)
    return laplacian - source(points)


def condition(net, points):
    return net(points)[:, 0] - solution(points)


def new_net():
    torch.manual_seed(0)
    layers = nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)
    return nn.Sequential(*layers)


# %%
# 150 points, and 20,000
# ----------------------
# The net has 337 parameters. With 150 points it can satisfy every residual and still be wrong.

generator = torch.Generator().manual_seed(0)
along = 2 * torch.rand(100, generator=generator) - 1
one = torch.ones_like(along)
sides = (along, one), (along, -one), (one, along), (-one, along)
border = torch.cat([torch.stack(side, dim=1) for side in sides])
inside = {count: 2 * torch.rand(count, 2, generator=generator) - 1 for count in (150, 20_000)}

axis = torch.linspace(-1, 1, 101)
grid = torch.cartesian_prod(axis, axis)


@torch.no_grad()
def error(net):
    """The root mean square of the difference from the solution."""
    return float((net(grid)[:, 0] - solution(grid)).square().mean().sqrt())


nets, curves = {}, {}


def solve(points):
    name = f"KSD, {len(points):,} points"
    net, curve = new_net(), []
    problem = ksdmin.from_torch(net, residuals=[(equation, points), (condition, border, 100.0)])

    def note(intermediate_result):
        problem.load(intermediate_result.x)
        curve.append((intermediate_result.record.seconds, error(net)))

    res = ksdmin.minimize(problem, rng=0, callback=note, options={"gtol": 0, "maxiter": 40})
    problem.load(res.x)
    nets[name], curves[name] = net, curve
    print(f"{name}: loss {res.fun:.0e}, error {error(net):.0e}, {curve[-1][0]:.1f} s")
    return res


few, many = solve(inside[150]), solve(inside[20_000])

# %%
# The steps come from samples of the points: ``size_A`` counts the points of a step, with those of
# the border. A run begins with a sample of :math:`10 \sqrt n` points, and takes a larger one if the
# other points are not fitted along with it (:doc:`/how`).

print(many.history["size_A"])

# %%
# L-BFGS with all points
# ----------------------
# For as many seconds, from the same net.

net = nets["torch L-BFGS, 20,000 points"] = new_net()
optimizer = torch.optim.LBFGS(
    net.parameters(),
    max_iter=1,
    max_eval=1000,
    history_size=100,
    line_search_fn="strong_wolfe",
    tolerance_grad=0,
    tolerance_change=0,
)


def closure():
    optimizer.zero_grad()
    value = (
        equation(net, inside[20_000]).square().mean() + 100 * condition(net, border).square().mean()
    )
    value.backward()
    return value


curve = curves["torch L-BFGS, 20,000 points"] = []
start, seconds = time.perf_counter(), curves["KSD, 20,000 points"][-1][0]
while not curve or curve[-1][0] < seconds:
    optimizer.step(closure)
    curve.append((time.perf_counter() - start, error(net)))

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for name, curve in curves.items():
    axes.semilogy(*zip(*curve, strict=True), label=f"{name}: {curve[-1][1]:.0e}")
axes.set(
    title="Poisson's equation by a net of 337 parameters, one core",
    xlabel="seconds",
    ylabel="root mean square error",
)
axes.legend(title="method: last error")

# %%
# Where the nets are wrong
# ------------------------
# Few points see little of the bump. Between them the net may do what it likes.

figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for ax, (count, points) in zip(axes, inside.items(), strict=True):
    with torch.no_grad():
        wrong = (
            (nets[f"KSD, {count:,} points"](grid)[:, 0] - solution(grid))
            .reshape(101, 101)
            .T.numpy()
        )
    limit = abs(wrong).max()
    drawn = ax.imshow(
        wrong, origin="lower", extent=(-1, 1, -1, 1), vmin=-limit, vmax=limit, cmap="RdBu"
    )
    if count < 1000:
        ax.plot(*points.T.numpy(), "k.", markersize=3)
    ax.set(title=f"error with {count:,} points", xticks=(-1, 1), yticks=(-1, 1))
    figure.colorbar(drawn, ax=ax, shrink=0.8, format="%.0e")
plt.show()

torch.set_default_dtype(torch.float32)  # for what follows in this process

# %%
# How many points
# ---------------
# - **More than parameters**, and more than you think: those that are not needed cost little.
# - **More where it is hard.** With a steep front even many uniform points see little of it: draw
#   them anew where residuals are large (:doc:`/physics_informed_nets`, *Points*).
# - **New points in each epoch** are not needed: each sample is drawn from all of them.
# - **On a GPU** nothing changes; ``memory_budget`` bounds what the Jacobian takes.
