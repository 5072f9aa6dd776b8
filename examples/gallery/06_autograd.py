"""
6. A model in autograd, with a loss of your own
===============================================

Write the model in NumPy, imported from ``autograd.numpy``, and autograd computes the derivatives.
The model here predicts a number and its uncertainty, with a loss that is in no library.
"""

import autograd.numpy as np
import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import StandardScaler

import ksdmin

# %%
# The data
# --------
# 442 patients, ten measurements each, and how far their diabetes had progressed a year later.

inputs, target = load_diabetes(return_X_y=True)
inputs = StandardScaler().fit_transform(inputs)
shift, unit = target.mean(), target.std()
target = ((target - shift) / unit)[:, None]
rng = np.random.default_rng(0)
order = rng.permutation(len(inputs))
train, test = order[:330], order[330:]

# %%
# The model
# ---------
# ``model(params, inputs) -> outputs``, one row per sample. The parameters are any nest of lists,
# tuples and dictionaries of arrays. Two outputs: a mean, and the logarithm of a standard
# deviation (to which the loss adds 0.1, so that it cannot vanish).

HIDDEN = 8
params = {
    "hidden": {"W": 0.3 * rng.standard_normal((10, HIDDEN)), "b": np.zeros(HIDDEN)},
    "output": {"W": 0.3 * rng.standard_normal((HIDDEN, 2)), "b": np.zeros(2)},
}


def model(params, inputs):
    hidden = np.tanh(inputs @ params["hidden"]["W"] + params["hidden"]["b"])
    return hidden @ params["output"]["W"] + params["output"]["b"]


# %%
# The loss
# --------
# ``loss(outputs, targets) -> one number per sample``: minus the logarithm of the normal density. It
# is differentiated in the outputs, for gradients and for curvature. (The common losses have
# names: ``"squared-error"``, ``"softmax-cross-entropy"``, ``"binary-cross-entropy"``,
# ``"poisson"``.)


def moments(outputs):
    return outputs[:, 0], 0.1 + np.exp(outputs[:, 1])  # mean, deviation


def surprise(outputs, targets):
    mean, deviation = moments(outputs)
    return np.log(deviation) + 0.5 * ((targets[:, 0] - mean) / deviation) ** 2


problem = ksdmin.from_autograd(
    model, surprise, (inputs[train], target[train]), params=params, l2=0.1
)

# %%
# The run
# -------
# The problem brings its start, its derivatives, and its number of samples. ``unflatten`` turns
# the solution into parameters.

res = ksdmin.minimize(problem, rng=0)
print(res)
found = problem.unflatten(res.x)

# %%
# L-BFGS-B on the same problem is one word, as always:

other = ksdmin.minimize(problem, method="L-BFGS-B", options={"maxiter": 10_000, "maxfun": 20_000})
for name, r in {"ksd": res, "L-BFGS-B": other}.items():
    loss = surprise(model(problem.unflatten(r.x), inputs[test]), target[test]).mean()
    print(f"{name:9} objective {r.fun:.4f}, loss on other patients {loss:.4f}")

# %%
# What it has learnt
# ------------------
# For the patients that it has not seen: the prediction, its own idea of its error, and the truth.

outputs = model(found, inputs[test])
mean, deviation = (unit * moment for moment in moments(outputs))
mean = shift + mean
truth = shift + unit * target[test, 0]
by_mean = np.argsort(mean)
figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
rank = np.arange(len(test))
axes.fill_between(
    rank,
    (mean - 2 * deviation)[by_mean],
    (mean + 2 * deviation)[by_mean],
    alpha=0.25,
    label="predicted, ± 2 deviations",
)
axes.plot(rank, mean[by_mean], label="predicted")
axes.plot(rank, truth[by_mean], ".", color="black", label="measured")
axes.set(
    title="Diabetes a year later, patients not seen in training",
    xlabel="patient, by prediction",
    ylabel="progression (score)",
)
axes.legend(loc="upper left")
inside = np.mean(np.abs(truth - mean) < 2 * deviation)
print(f"{100 * inside:.0f} % of the measurements lie in the band; the normal law says 95 %")
plt.show()
