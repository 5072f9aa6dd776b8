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
    "deep": (lambda: nn.Sequential(mlp(6, 7, 5), nn.Tanh(), mlp(5, 4, 3)), (6,), 3),
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
SQUARES = nn.MSELoss()
SIZES = ksdmin.Subsets(3000, curvature=300, search=300)
COARSE = {"dtype": SINGLE, "l2": 1e-2, "options": {"maxiter": 200, "gtol": 2e-5}}

NETS = {
    "net": ("mlp", {}),
    "net_regression": ("mlp", {"loss": SQUARES}),
    "net_deep": ("deep", {"l2": 1e-4, "options": {"maxiter": 40}}),
    "net_chunks": ("mlp", {"chunk_size": 700, "m": 2000}),
    "net_hessian": ("mlp", {"curvature": "hessian"}),
    "net_fisher": ("mlp", {"curvature": "fisher"}),
    "net_empirical_fisher": ("mlp", {"curvature": "empirical-fisher"}),
    "net_no_precond": ("mlp", {"precond": None}),
    "net_precond_array": ("mlp", {"precond": torch.linspace(0.5, 2.0, 83, dtype=torch.float64)}),
    "net_l2": ("mlp", {"l2": 1e-3, "options": {"maxiter": 300, "gtol": 1e-5}}),
    "net_l2_by_name": ("mlp", {"l2": {"0": 1e-2, "2.weight": 1e-3}}),
    "net_sizes": ("mlp", {"subsets": SIZES}),
    "net_damping": ("mlp", {"options": {"damping": 1.0}}),
    "net_diagonal_power": ("mlp", {"options": {"diagonal_power": 0.5}}),
    "net_few": ("mlp", {"m": 300, "loss": SQUARES}),
    "net_float32": ("mlp", {"dtype": SINGLE}),
    # To the end, so that they go over to finer arithmetic
    "net_high": ("mlp", {"precision": "high", **COARSE}),
    "net_bfloat16": ("mlp", {"precision": "bfloat16", **COARSE}),
    "net_dropout": ("dropout", {}),
    "net_conv": ("conv", {"m": 600, "options": {"maxiter": 10}}),
    "net_lstm": ("lstm", {"m": 600, "dtype": SINGLE, "options": {"maxiter": 10}}),
    "net_linear": ("linear", {"l2": 1e-4, "options": {"maxiter": 300}}),
    "net_linear_squares": ("linear", {"loss": SQUARES, "m": 5000, "scale": 30.0}),
    "net_linear_weights": (
        "linear",
        {"loss": nn.CrossEntropyLoss(torch.tensor([1.0, 3.0, 0.5], dtype=torch.float64))},
    ),
    "net_paper": ("mlp", {"options": ksdmin.PAPER | {"maxiter": 10}}),
    "net_paper_hessian": (
        "mlp",
        {"curvature": "hessian", "options": ksdmin.PAPER | {"maxiter": 10, "krylov_dim": 10}},
    ),
    "net_hf": ("mlp", {"method": "hf"}),
    "net_hf_hessian": (
        "mlp",
        {"method": "hf", "curvature": "hessian", "options": {"damping": 1.0}},
    ),
    "net_hf_float32": (
        "mlp",
        {
            "method": "hf",
            "dtype": SINGLE,
            "loss": SQUARES,
            "options": {"damping": 5.0, "inner_maxiter": 15, "maxiter": 12},
        },
    ),
}

for name, (kind, given) in NETS.items():
    run(partial(minimize_net, kind, **given), name)
