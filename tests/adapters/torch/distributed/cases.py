"""Problems that are made of all samples in one process, or of a share in each of several."""

import numpy as np
import torch
from torch import nn

import ksdmin

N, FEATURES = 203, 4
CUTS = {1: (), 2: (150,), 4: (100, 101, 160)}  # shares of different sizes


def samples(kind="net"):
    """All inputs and targets."""
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.standard_normal((N, FEATURES)))
    if kind == "classes":
        return X, torch.from_numpy(rng.integers(0, 3, N))
    return X, torch.sin(X.sum(1, keepdim=True)) + X[:, :1] ** 2


def share(thing, rank, size):
    """The rows of one rank."""
    cuts = (0, *CUTS[size], N)
    return thing[cuts[rank] : cuts[rank + 1]]


def model(kind="net"):
    torch.manual_seed(1)
    if kind == "linear":
        return nn.Linear(FEATURES, 1).double()
    if kind == "embedding":  # its diagonal takes the gradient of every sample
        return nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 2), nn.Flatten(),
                             nn.Tanh(), nn.Linear(9, 1)).double()  # fmt: skip
    outputs = 3 if kind == "classes" else 1
    return nn.Sequential(nn.Linear(FEATURES, 7), nn.Tanh(), nn.Linear(7, outputs)).double()


def weights(kind):
    """Of all samples; None where they have none."""
    return np.linspace(0.5, 2.0, N) if kind == "weighted" else None


def loss(kind):
    if kind == "classes":
        return nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 5.0]).double(), ignore_index=1)
    return nn.MSELoss()


def problem(kind="net", rank=0, size=1, **arguments):
    """The problem; of one process alone where no process_group is given."""
    X, y = samples(kind)
    w = weights(kind)
    grouped = "process_group" in arguments
    cut = (lambda thing: share(thing, rank, size)) if grouped else (lambda thing: thing)
    if w is not None:
        arguments["sample_weight"] = cut(w)
    arguments.setdefault("l2", 1e-3)
    return ksdmin.from_torch(model(kind), loss(kind), (cut(X), cut(y)), **arguments)


def grouped(kind, rank, size, **arguments):
    """The same in one of several processes."""
    import torch.distributed as dist

    arguments.setdefault("process_group", dist.group.WORLD)
    return problem(kind, rank, size, **arguments)


def sets():
    """Sets of samples: everything, some, and some that only one rank has."""
    rng = np.random.default_rng(3)
    return [slice(None), np.sort(rng.choice(N, 60, replace=False)), np.arange(5, 17)]


def quantities(problem):
    """Every number that a problem gives, at a point beside x0 and for several sets."""
    rng = np.random.default_rng(7)
    n = problem.x0.numel()
    x = problem.x0 + 0.1 * torch.from_numpy(rng.standard_normal(n))
    V = torch.from_numpy(rng.standard_normal((3, n)))
    out = {}
    for number, idx in enumerate(sets()):
        out[number, "value"] = problem.value(x, idx)
        value, g, D = problem.value_and_gradient(x, idx, diagonal=True)
        out |= {(number, "v"): value, (number, "g"): g, (number, "D"): D}
        out[number, "slopes"] = np.append(*problem.value_and_projected_gradient(x, idx, V)[::-1])
        product = problem.curvature(x, idx)
        out[number, "product"], out[number, "again"] = product(V[0]), product(V[1])
        if problem.traits.has_matrix:
            out[number, "matrix"] = problem.matrix(x, idx)
    return {key: np.asarray(value) for key, value in out.items()}


def quantities_in_group(rank, size, kind, arguments):
    return quantities(grouped(kind, rank, size, **arguments))


def run(problem, options, subsets=None, **more):
    res = ksdmin.minimize(problem, options=options, subsets=subsets, rng=5, **more)
    history = {name: res.history[name] for name in res.history.columns}
    return {"x": np.asarray(res.x), "fun": res.fun, "status": res.status, "nit": res.nit,
            "nfev": res.nfev, "message": res.message, "history": history}  # fmt: skip


def run_in_group(rank, size, kind, options, sizes=None, arguments=None):
    subsets = None if sizes is None else ksdmin.Subsets(N, *sizes)
    return run(grouped(kind, rank, size, **(arguments or {})), options, subsets)
