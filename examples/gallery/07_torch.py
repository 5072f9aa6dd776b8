"""
7. A torch net on the CPU, and the same on a GPU
================================================

:func:`ksdmin.from_torch` turns a module, a loss and data into a problem over one flat vector. The
vector, the basis and the data stay on the module's device: on a machine with a GPU, this script
runs there.
"""

import time
from itertools import pairwise

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

import ksdmin

# sphinx_gallery_thumbnail_number = 1

device = "cuda" if torch.cuda.is_available() else "cpu"
print(torch.cuda.get_device_name() if device == "cuda" else f"CPU, torch {torch.__version__}")

# %%
# A net, a loss, data
# -------------------
# A deep auto-encoder of digits: 64 pixels, through 3 numbers, to 64 pixels. All of it plain
# torch, in float32. The data are scikit-learn's digits, with copies moved by one pixel.

WIDTHS = (64, 64, 32, 16, 3, 16, 32, 64, 64)
CODE = 4  # the layer whose units are linear
INCOMING = 15  # weights of a unit that do not start at zero (Martens 2010)

images = torch.tensor(load_digits().images / 16, dtype=torch.float32)
padded = nn.functional.pad(images, (1, 1, 1, 1))
corners = [(1, 1), (0, 1), (2, 1), (1, 0), (1, 2)]
pixels = torch.cat([padded[:, i : i + 8, j : j + 8].reshape(-1, 64) for i, j in corners]).to(device)


def auto_encoder():
    torch.manual_seed(0)
    layers = []
    for k, (fan_in, fan_out) in enumerate(pairwise(WIDTHS), start=1):
        layer = nn.Linear(fan_in, fan_out)
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        count = min(INCOMING, fan_in)
        for row in layer.weight.data:
            row[torch.randperm(fan_in)[:count]] = torch.randn(count)
        layers += [layer] if k in (CODE, len(WIDTHS) - 1) else [layer, nn.Sigmoid()]
    return nn.Sequential(*layers).to(device)


loss = nn.BCEWithLogitsLoss(reduction="sum")  # the sum over pixels; the mean over digits


@torch.no_grad()
def error(net):
    """The squared error of a digit, the mean over digits."""
    return float((torch.sigmoid(net(pixels)) - pixels).square().sum()) / len(pixels)


# %%
# KSD
# ---
# No learning rate, no schedule, no damping. ``maxtime`` ends the run after so many seconds, and
# ``problem.load`` puts the parameters back into the module.

SECONDS = 5.0
net = trained = auto_encoder()
problem = ksdmin.from_torch(net, loss, (pixels, pixels), curvature="gauss-newton", l2=1e-6)
curves = {"KSD": []}


def note(intermediate_result):
    problem.load(intermediate_result.x)
    curves["KSD"].append((intermediate_result.record.seconds, error(net)))


res = ksdmin.minimize(problem, rng=0, callback=note, options={"maxtime": SECONDS})
problem.load(res.x)
print(res)
print(f"x is on {res.x.device}; squared error {error(net):.3f}")

# %%
# HF, on the same problem
# -----------------------
# Martens' method is one word away.

curves["HF"] = []
net = auto_encoder()
problem = ksdmin.from_torch(net, loss, (pixels, pixels), l2=1e-6)


def note_hf(intermediate_result):
    problem.load(intermediate_result.x)
    curves["HF"].append((intermediate_result.record.seconds, error(net)))


ksdmin.minimize(problem, method="hf", rng=0, callback=note_hf, options={"maxtime": SECONDS})

# %%
# torch's own
# -----------
# L-BFGS over the whole set, and Adam over batches of 200 with two learning rates, for the same
# seconds each.


def train(step, curve):
    start = time.perf_counter()
    while (seconds := time.perf_counter() - start) < SECONDS:
        step()
        curve.append((seconds, error(net)))


def lbfgs_step():
    def closure():
        optimizer.zero_grad()
        value = loss(net(pixels), pixels) / len(pixels)
        value.backward()
        return value

    optimizer.step(closure)


def adam_epoch():
    for batch in pixels[torch.randperm(len(pixels), device=device)].split(200):
        optimizer.zero_grad()
        (loss(net(batch), batch) / len(batch)).backward()
        optimizer.step()


net = auto_encoder()
optimizer = torch.optim.LBFGS(
    net.parameters(), max_iter=5, history_size=20, line_search_fn="strong_wolfe"
)
train(lbfgs_step, curves.setdefault("torch L-BFGS", []))
for rate in (1e-3, 1e-2):
    net = auto_encoder()
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    train(adam_epoch, curves.setdefault(f"Adam, rate {rate:g}", []))

# %%

figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
for name, curve in curves.items():
    axes.semilogy(*zip(*curve, strict=True), label=f"{name}: {curve[-1][1]:.2f}")
axes.set(
    title=f"A deep auto-encoder of {len(pixels):,} digits, float32, {device.upper()}",
    xlabel="seconds",
    ylabel="squared error of a digit",
    ylim=(1, 12),
)
axes.set_yticks([1, 2, 3, 4, 6, 8, 12], ["1", "2", "3", "4", "6", "8", "12"])
axes.set_yticks([], minor=True)
axes.legend(title="method: last error")

# %%
# KSD has nothing to tune. Adam depends on its rate: with a good one it is hard to beat on a small
# net, and finding it takes runs like these.
#
# What it sees
# ------------
# Above the digits, below what is left of them after three numbers.

with torch.no_grad():
    copies = torch.sigmoid(trained(pixels[:10])).cpu()
figure, axes = plt.subplots(2, 10, figsize=(8, 1.9), layout="constrained")
for column, (digit, copy) in enumerate(zip(pixels[:10].cpu(), copies, strict=True)):
    for row, image in enumerate((digit, copy)):
        axes[row, column].imshow(image.reshape(8, 8), cmap="Greys", vmin=0, vmax=1)
        axes[row, column].axis("off")
figure.suptitle("Digits, and what the net makes of them")
plt.show()

# %%
# On a GPU
# --------
# Nothing in the script changes. On CUDA the products run as graphs that are captured once;
# ``precision="high"`` allows TF32. On a small net like this one a GPU is not busy, and shows
# little; :doc:`/benchmarks` has what one H200 does with the paper's MNIST auto-encoder, a net of
# 2.8 million parameters.
