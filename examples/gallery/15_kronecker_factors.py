"""
15. A deep net, and its Kronecker factors
=========================================

In a deep net some parameters bend the loss a thousand times more than others. A preconditioner
evens that out, so that a few products with the curvature are enough. Nets of
:func:`ksdmin.from_torch` get one by themselves: two small matrices for each layer. This page shows
what they are, and what they save.
"""

import time
from itertools import pairwise

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

import ksdmin

# sphinx_gallery_thumbnail_number = 1

# %%
# An auto-encoder
# ---------------
# 64 pixels, through 8 numbers, to 64 pixels: six layers and 7,232 parameters, for the 1,797 digits
# of scikit-learn.

WIDTHS = (64, 40, 20, 8, 20, 40, 64)
pixels = torch.tensor(load_digits().data / 16, dtype=torch.float32)


def auto_encoder():
    torch.manual_seed(0)
    layers = []
    for layer, (fan_in, fan_out) in enumerate(pairwise(WIDTHS), start=1):
        layers += [nn.Linear(fan_in, fan_out)]
        layers += [] if layer in (3, 6) else [nn.Tanh()]
    return nn.Sequential(*layers)


# %%
# What it saves
# -------------
# ``precond="kronecker"`` is the default for a net of such layers; ``precond="diagonal"`` takes the
# mean of the squared gradients, a number for each parameter.

loss = nn.MSELoss()
nets, results, curves = {}, {}, {}
for name, precond, iterations in (
    ("KSD, factors", "kronecker", 25),
    ("KSD, diagonal", "diagonal", 10),
):
    nets[name] = auto_encoder()
    problem = ksdmin.from_torch(nets[name], loss, (pixels, pixels), precond=precond, l2=1e-7)
    res = results[name] = ksdmin.minimize(problem, rng=0, options={"maxiter": iterations})
    problem.load(res.x)
    curves[name] = [res.history[column] for column in ("passes", "seconds", "value")]
    largest = max(res.history["dim"])
    print(
        f"{name}: loss {res.fun:.4f}, {res.passes:.0f} passes, spaces of at most {largest} vectors"
    )

# %%
# A pass is one value or one gradient over all samples; a product counts as two. With the factors a
# run needs fewer passes, because the preconditioner has done the work of most products.
#
# L-BFGS and Adam
# ---------------
# For as many seconds as the first run took. Adam has batches of 200; its rate is the best of three
# that were tried before: 0.001, 0.003 and 0.01.

seconds = curves["KSD, factors"][1][-1]


def train(name, step):
    passes, found, start = [], [], time.perf_counter()
    while (now := time.perf_counter() - start) < seconds:
        passes.append((passes[-1] if passes else 0) + step())
        with torch.no_grad():
            found.append((now, float(loss(nets[name](pixels), pixels))))
    curves[name] = [passes, *zip(*found, strict=True)]
    print(f"{name}: loss {found[-1][1]:.4f}, {passes[-1]:.0f} passes")


def lbfgs_step():
    calls = 0

    def closure():
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        value = loss(net(pixels), pixels)
        value.backward()
        return value

    optimizer.step(closure)
    return 2 * calls


def adam_epoch():
    for batch in pixels[torch.randperm(len(pixels))].split(200):
        optimizer.zero_grad()
        loss(net(batch), batch).backward()
        optimizer.step()
    return 2


net = nets["torch L-BFGS"] = auto_encoder()
optimizer = torch.optim.LBFGS(
    net.parameters(), max_iter=5, history_size=20, line_search_fn="strong_wolfe"
)
train("torch L-BFGS", lbfgs_step)
net = nets["Adam, rate 0.01"] = auto_encoder()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
train("Adam, rate 0.01", adam_epoch)

# %%

figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
for name, (passes, times, values) in curves.items():
    axes[0].loglog(passes, values, label=f"{name}: {values[-1]:.4f}")
    axes[1].semilogy(times, values)
axes[0].set(xlabel="passes over the data", ylabel="mean squared error of a pixel", xlim=(1, None))
axes[1].set(xlabel="seconds")
axes[0].legend(title="method: last loss")
figure.suptitle("A deep auto-encoder of 1,797 digits")

# %%
# Count passes, and KSD with the factors is far ahead. Count seconds, and L-BFGS and Adam with its
# best rate are as good or better: on one core, with a net as small as this, most of a step's time
# is spent outside the passes. Passes decide where they are expensive: with larger nets, more
# samples, and on a GPU. :doc:`/benchmarks` has such nets, also some where Adam is ahead.
#
# What the factors are
# --------------------
# Take the layer of 20 inputs and 8 outputs, which has 160 weights. For one sample with the inputs
# :math:`a`, their block of the Gauss-Newton matrix is :math:`a a^T \otimes J^T J`, where :math:`J`
# is the Jacobian of the pixels by the outputs of the layer. The mean over all samples has
# 160 x 160 numbers. K-FAC (Martens and Grosse, 2015) takes the mean of each factor instead:
# 20 x 20 and 8 x 8 numbers, and the inverse of their product is the product of their inverses.

net = nets["KSD, factors"]
with torch.no_grad():
    a = net[:4](pixels)
    J = torch.func.vmap(torch.func.jacrev(net[5:]))(net[:5](pixels))
JJ = J.mT @ J
exact = torch.einsum("sij,skl->ikjl", a[:, :, None] * a[:, None], JJ).reshape(160, 160) / len(a)
factors = torch.kron(a.T @ a / len(a), JJ.mean(dim=0))
likeness = float((exact * factors).sum() / (exact.norm() * factors.norm()))

figure, axes = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
titles = "its Gauss-Newton matrix", f"the product of two factors: correlation {likeness:.3f}"
for ax, title, matrix in zip(axes, titles, (exact, factors), strict=True):
    limit = float(exact.abs().max()) / 3
    ax.imshow(matrix.numpy(), vmin=-limit, vmax=limit, cmap="RdBu")
    ax.set(title=title, xticks=(), yticks=())
figure.suptitle("160 weights of a layer")
plt.show()

# %%
# When to change it
# -----------------
# - **Other layers.** Convolutions and embeddings have factors, too. Parameters of
#   norms have one number for each tensor.
# - **A linear model, or residuals of equations** get no factors by default: there the whole matrix,
#   or the Jacobian's rows, serve better.
# - ``precond="diagonal"`` or ``precond=None`` may suit a small net better, where products cost
#   little; ``options={"krylov_dim": 10}`` allows larger spaces. :doc:`/steps` has the
#   formulas.
