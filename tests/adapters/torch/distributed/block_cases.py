"""Blocks of residuals, in one process or spread over several."""

import numpy as np
import torch
from torch import nn

import ksdmin
from tests.adapters.torch.distributed import cases

POINTS, EDGES = 90, 40  # samples of the first two blocks; the third takes none
CUTS = {2: ((60,), (1,)), 4: ((20, 21, 70), (10, 20, 30))}
N = POINTS + EDGES + 1


def interior(net, X):
    """Two residuals a sample."""
    return torch.cat([net(X) - X.sum(1, keepdim=True).sin(), 0.1 * net(-X)], 1)


def edge(net, batch):
    X, y = batch
    return net(X) - y


def size_of_weights(net):
    return 0.1 * net[0].weight.reshape(-1) ** 2


def data():
    rng = np.random.default_rng(4)
    X = torch.from_numpy(rng.standard_normal((POINTS, cases.FEATURES)))
    at = torch.from_numpy(rng.standard_normal((EDGES, cases.FEATURES)))
    return X, (at, at[:, :1] ** 2)


def model(width=7):
    """A net; without hidden units, a model that is linear in its parameters."""
    torch.manual_seed(2)
    if not width:
        return nn.Sequential(nn.Linear(cases.FEATURES, 1)).double()
    layers = nn.Linear(cases.FEATURES, width), nn.Tanh(), nn.Linear(width, 1)
    return nn.Sequential(*layers).double()


def problem(rank=0, size=1, width=7, count=3, **arguments):
    """The problem; of one process alone where no process_group is given."""
    X, (at, y) = data()
    if "process_group" in arguments and size > 1:
        inner, outer = ((0, *cut, n) for cut, n in zip(CUTS[size], (POINTS, EDGES), strict=True))
        X = X[inner[rank] : inner[rank + 1]]
        at, y = (u[outer[rank] : outer[rank + 1]] for u in (at, y))
    arguments.setdefault("l2", 1e-3)
    blocks = [(interior, X), (edge, (at, y), 3.0), (size_of_weights, None, 0.5)]
    return ksdmin.from_torch(model(width), residuals=blocks[:count], **arguments)


def grouped(rank, size, **arguments):
    import torch.distributed as dist

    return problem(rank, size, process_group=dist.group.WORLD, **arguments)


def sets():
    """Everything, and some of each block: once with one sample of the second."""
    some = np.array([3, 59, 61, 88, 91, 100, 120, 130])
    return [slice(None), some, np.array([0, 80, 129, 130])]


def quantities_in_group(rank, size, arguments):
    return cases.quantities(grouped(rank, size, **arguments), sets)


def run(problem, options, sizes=None):
    subsets = None if sizes is None else ksdmin.Subsets(N, *sizes)
    return cases.run(problem, options, subsets)


def run_in_group(rank, size, options, sizes, arguments):
    return run(grouped(rank, size, **arguments), options, sizes)


def saved_and_resumed(rank, size, path):
    """A saved run that goes on in the same processes."""
    options = {"maxiter": 3, "checkpoint": path}
    run(grouped(rank, size), options, (1.0, 0.3, 0.3))
    subsets = ksdmin.Subsets(N, 1.0, 0.3, 0.3)
    return ksdmin.resume(path, grouped(rank, size), options={"maxiter": 6}, subsets=subsets).fun


def with_other_weights(rank, size):
    import torch.distributed as dist

    blocks = [(interior, data()[0], 1.0 + rank)]
    return ksdmin.from_torch(model(), residuals=blocks, process_group=dist.group.WORLD)


def failing(rank, size, fails_at):
    """Residuals that raise in the last rank, when they are called for the so many-th time."""
    import torch.distributed as dist

    calls = [-(10**9)]

    def fragile(net, X):
        calls[0] += 1
        if calls[0] == fails_at:
            raise ValueError("the dog ate the points")
        return interior(net, X)

    X, _ = data()
    blocks = [(fragile, X[rank::size]), (interior, X[rank::size])]
    problem = ksdmin.from_torch(model(), residuals=blocks, process_group=dist.group.WORLD)
    calls[0] = 0 if rank == size - 1 else -(10**9)
    return cases.run(problem, {"maxiter": 6}, ksdmin.Subsets(2 * POINTS, 1.0, 0.3, 0.3))
