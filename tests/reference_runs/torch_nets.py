"""Torch models. How many samples go at once is always given: free memory would say otherwise."""

from functools import cache, partial

import numpy as np
import torch
from torch import nn

import ksdmin
from tests.reference_runs.registry import run

CHUNK, BUDGET = 4096, 2**28


class Last(nn.Module):
    """A recurrent layer, of which the last output counts, and a linear one."""

    def __init__(self, recurrent, size, outputs):
        super().__init__()
        self.recurrent, self.head = recurrent, nn.Linear(size, outputs)

    def forward(self, x):
        return self.head(self.recurrent(x)[0][:, -1])


def mlp(n, hidden, outputs, *between):
    return nn.Sequential(nn.Linear(n, hidden), nn.Tanh(), *between, nn.Linear(hidden, outputs))


def conv():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(12, 3)
    )


def lstm():
    return Last(nn.LSTM(2, 4, batch_first=True), 4, 3)


MODELS = {  # what makes the model, the shape of an input, and how many outputs there are
    "mlp": (lambda: mlp(6, 8, 3), (6,), 3),
    "dropout": (lambda: mlp(6, 8, 3, nn.Dropout(0.2)), (6,), 3),
    "conv": (conv, (1, 6, 6), 3),
    "lstm": (lstm, (5, 2), 3),
    "linear": (lambda: nn.Linear(6, 3), (6,), 3),
}


@cache
def samples(shape, outputs, m):
    """Inputs, what a random net makes of them, and noise: to be fitted, or the largest of them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((m, *shape))
    flat = X.reshape(m, -1)
    hidden = np.tanh(flat @ rng.standard_normal((flat.shape[1], 5)) / 2)
    Y = hidden @ rng.standard_normal((5, outputs)) + 0.3 * rng.standard_normal((m, outputs))
    return X, Y, np.argmax(Y, axis=1)


def problem(kind, m=3000, loss=None, dtype=torch.float64, scale=1.0, **given):
    """Classification, or with another loss regression."""
    make, shape, outputs = MODELS[kind]
    X, Y, labels = samples(shape, outputs, m)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = make().to(dtype)
    regression = isinstance(loss, nn.MSELoss)
    targets = torch.as_tensor(Y, dtype=dtype) if regression else torch.as_tensor(labels)
    return ksdmin.from_torch(
        model,
        loss or nn.CrossEntropyLoss(),
        (torch.as_tensor(scale * X, dtype=dtype), targets),
        **{"chunk_size": CHUNK, "memory_budget": BUDGET, "rng": 3, **given},
    )


def minimize_net(kind, options=None, method="ksd", subsets=None, **given):
    """Twenty iterations, unless told otherwise."""
    return ksdmin.minimize(
        problem(kind, **given),
        method=method,
        subsets=subsets,
        options={"maxiter": 20, **(options or {})},
        rng=0,
    )


SINGLE = torch.float32

NETS = {
    "net": ("mlp", {}),
    "net_fisher": ("mlp", {"curvature": "fisher"}),
    "net_l2": ("mlp", {"l2": 1e-3, "chunk_size": 700, "options": {"maxiter": 300, "gtol": 1e-5}}),
    # To the end, so that it goes over to finer arithmetic
    "net_bfloat16": (
        "mlp",
        {
            "precision": "bfloat16",
            "dtype": SINGLE,
            "l2": 1e-2,
            "options": {"maxiter": 200, "gtol": 2e-5},
        },
    ),
    "net_dropout": ("dropout", {}),
    "net_conv": ("conv", {"m": 600, "options": {"maxiter": 10}}),
    "net_lstm": ("lstm", {"m": 600, "dtype": SINGLE, "options": {"maxiter": 10}}),
    "net_linear": ("linear", {"l2": 1e-4, "options": {"maxiter": 300}}),
    "net_linear_weights": (
        "linear",
        {"loss": nn.CrossEntropyLoss(torch.tensor([1.0, 3.0, 0.5], dtype=torch.float64))},
    ),
    "net_paper_hessian": (
        "mlp",
        {"curvature": "hessian", "options": ksdmin.PAPER | {"maxiter": 10, "krylov_dim": 10}},
    ),
    "net_hf_float32": (
        "mlp",
        {
            "method": "hf",
            "dtype": SINGLE,
            "loss": nn.MSELoss(),
            "options": {"damping": 5.0, "inner_maxiter": 15, "maxiter": 12},
        },
    ),
}

for name, (kind, given) in NETS.items():
    run(partial(minimize_net, kind, **given), name)


@run
def blocks():
    """Residuals of two kinds, each with points of its own: a differential equation."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = mlp(1, 8, 1).double()

    def equation(model, points):
        points = points.requires_grad_()
        u = model(points)
        (slope,) = torch.autograd.grad(u.sum(), points, create_graph=True)
        return slope + u - torch.sin(points)

    def at_zero(model, points):
        return model(points) - 1

    inside = torch.linspace(0, 3, 400, dtype=torch.float64)[:, None]
    problem = ksdmin.from_torch(
        model,
        residuals=[(equation, inside, 1.0), (at_zero, inside[:1], 10.0)],
        chunk_size=CHUNK,
        memory_budget=BUDGET,
        rng=3,
    )
    return ksdmin.minimize(problem, rng=0, options={"maxiter": 15})
