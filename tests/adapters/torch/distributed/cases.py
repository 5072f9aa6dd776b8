"""Problems that are made of all samples in one process, or of a share in each of several."""

import os
import signal
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import ksdmin
from ksdmin._problem.counting import Counts

N, FEATURES = 203, 4
POINTS, EDGES = 90, 40  # samples of the first two blocks of residuals; the third takes none
CUTS = {  # shares of different sizes, by the number of samples and of ranks
    N: {1: (), 2: (150,), 4: (100, 101, 160)},
    POINTS: {1: (), 2: (60,), 4: (20, 21, 70)},
    EDGES: {1: (), 2: (1,), 4: (10, 20, 30)},
}
WIDTHS = {  # 241 and 151 unknowns; there are 203 residuals
    "wide": 40,
    "medium": 25,
    "wide blocks": 40,
    "two wide blocks": 40,
}


def samples(kind="net"):
    """All inputs and targets."""
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.standard_normal((N, FEATURES)))
    if kind == "classes":
        return X, torch.from_numpy(rng.integers(0, 3, N))
    return X, torch.sin(X.sum(1, keepdim=True)) + X[:, :1] ** 2


def share(thing, rank, size):
    """The rows of one rank."""
    cuts = (0, *CUTS[len(thing)][size], len(thing))
    return thing[cuts[rank] : cuts[rank + 1]]


def model(kind="net"):
    torch.manual_seed(1)
    if kind.startswith("linear"):
        return nn.Linear(FEATURES, 1).double()
    if kind == "embedding":  # its diagonal takes the gradient of every sample
        return nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 2), nn.Flatten(),
                             nn.Tanh(), nn.Linear(9, 1)).double()  # fmt: skip
    outputs, width = 3 if kind == "classes" else 1, WIDTHS.get(kind, 7)
    layers = nn.Linear(FEATURES, width), nn.Tanh(), nn.Linear(width, outputs)
    return nn.Sequential(*layers).double()


def some_sets():
    """All samples for the gradient, fewer for curvature and search."""
    return ksdmin.Subsets(N, 1.0, 0.3, 0.3)


# Blocks of residuals


def interior(net, X):
    """Two residuals a sample."""
    return torch.cat([net(X) - X.sum(1, keepdim=True).sin(), 0.1 * net(-X)], 1)


def edge(net, batch):
    X, y = batch
    return net(X) - y


def size_of_weights(net):
    return 0.1 * net[0].weight.reshape(-1) ** 2


def blocks(kind, cut):
    """Of some points and some edges; of the weights, too, where the name says nothing else."""
    rng = np.random.default_rng(4)
    X = torch.from_numpy(rng.standard_normal((POINTS, FEATURES)))
    at = torch.from_numpy(rng.standard_normal((EDGES, FEATURES)))
    found = [(interior, cut(X)), (edge, (cut(at), cut(at[:, :1] ** 2)), 3.0)]
    if kind in ("blocks", "wide blocks"):
        found.append((size_of_weights, None, 0.5))
    return found


def weights(kind):
    """Of all samples; None where they have none."""
    return np.linspace(0.5, 2.0, N) if kind == "weighted" else None


def squares(z, y):
    """A loss that defines no labels: the factors are those of the data."""
    return (z - y).square().mean(1)


def loss(kind):
    if kind == "own loss":
        return squares
    if kind == "classes":
        return nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 5.0]).double(), ignore_index=1)
    return nn.MSELoss()


def problem(kind="net", rank=0, size=1, **arguments):
    """The problem; of one process alone where no process_group is given."""
    grouped = "process_group" in arguments
    cut = (lambda thing: share(thing, rank, size)) if grouped else (lambda thing: thing)
    arguments.setdefault("l2", 1e-3)
    # Labels that are drawn for factors would be others in each number of processes
    arguments.setdefault("precond", "diagonal")
    if "blocks" in kind:
        return ksdmin.from_torch(model(kind), residuals=blocks(kind, cut), **arguments)
    w = weights(kind)
    if w is not None:
        arguments["sample_weight"] = cut(w)
    data = tuple(map(cut, samples(kind)))
    return ksdmin.from_torch(model(kind), loss(kind), data, **arguments)


def grouped(kind, rank, size, **arguments):
    """The same in one of several processes."""
    arguments.setdefault("process_group", dist.group.WORLD)
    return problem(kind, rank, size, **arguments)


def sets(kind):
    """Sets of samples: everything, some, some in disorder, and some that only one rank has."""
    if "blocks" in kind:  # once with one sample of the second
        end = [POINTS + EDGES] if kind in ("blocks", "wide blocks") else []
        some = np.array([3, 59, 61, 88, 91, 100, 120, *end])
        return [slice(None), some, np.array([0, 80, 129, *end])]
    rng = np.random.default_rng(3)
    some = rng.choice(N, 60, replace=False)
    return [slice(None), np.sort(some), some, np.arange(5, 17)]


def quantities(problem, kind):
    """Every number that a problem gives, at a point beside x0 and for several sets."""
    rng = np.random.default_rng(7)
    n = problem.x0.numel()
    x = problem.x0 + 0.1 * torch.from_numpy(rng.standard_normal(n))
    V = torch.from_numpy(rng.standard_normal((3, n)))
    out = {}
    for number, idx in enumerate(sets(kind)):
        out[number, "value"] = problem.value(x, idx)
        value, g, D = problem.value_and_gradient(x, idx, diagonal=True)
        out |= {(number, "v"): value, (number, "g"): g, (number, "D"): D}
        out[number, "slopes"] = np.append(*problem.value_and_projected_gradient(x, idx, V)[::-1])
        product = problem.curvature(x, idx)
        out[number, "product"], out[number, "again"] = product(V[0]), product(V[1])
        if problem.traits.has_matrix:
            out[number, "matrix"] = problem.matrix(x, idx)
        if problem.traits.has_jacobian:
            J = problem.jacobian(x, idx)
            out |= {(number, "rows"): J.rows, (number, "residuals"): J.residuals}
    return {key: np.asarray(value) for key, value in out.items()}


def quantities_in_group(rank, size, kind, arguments):
    return quantities(grouped(kind, rank, size, **arguments), kind)


def run(problem, options, subsets=None, **more):
    res = ksdmin.minimize(problem, options=options, subsets=subsets, rng=5, **more)
    history = {name: res.history[name] for name in res.history.columns}
    return {"x": np.asarray(res.x), "fun": res.fun, "status": res.status, "nit": res.nit,
            "nfev": res.nfev, "message": res.message, "history": history}  # fmt: skip


def run_in_group(rank, size, kind, options, sizes=None, arguments=None):
    problem = grouped(kind, rank, size, **(arguments or {}))
    return run(problem, options, subsets_of(problem, sizes))


def subsets_of(problem, sizes):
    return None if sizes is None else ksdmin.Subsets(problem.subsets.n, *sizes)


def payload(rank, size, kind, verb):
    """The messages of one evaluation, and their bytes."""
    problem, counts = grouped(kind, rank, size), Counts()
    getattr(problem.counting(counts), verb)(problem.x0, slice(None))
    return counts.reductions, counts.reduced_bytes


# What goes wrong


class Fragile(nn.Module):
    """A net that raises, in one rank, when it is called for the so many-th time in a run."""

    def __init__(self, fails_at=None):
        super().__init__()
        self.inner, self.calls, self.fails_at = model("net"), 0, fails_at

    def forward(self, X):
        self.calls += 1
        if self.calls == self.fails_at:
            raise ValueError("the dog ate the batch")
        return self.inner(X)


def fragile_problem(rank, size, fails_at):
    """The problem of a net that fails in the last rank only."""
    net = Fragile()
    X, y = (share(thing, rank, size) for thing in samples())
    group = dist.group.WORLD
    problem = ksdmin.from_torch(net, nn.MSELoss(), (X, y), process_group=group, precond="diagonal")
    net.calls, net.fails_at = 0, fails_at if rank == size - 1 else None
    return problem


def factored_run(rank, size):
    """The factors at the start, and the end of a run."""
    problem = grouped("own loss", rank, size, precond="kronecker")
    entries = np.asarray(problem.factors(problem.x0).entries)
    return entries, run(problem, {"maxiter": 6})


def failing_run(rank, size, fails_at, options):
    return run(fragile_problem(rank, size, fails_at), options, some_sets())


def retried_run(rank, size, fails_at):
    """A Solver whose iteration failed, and is tried again."""
    subsets, options = some_sets(), {"maxiter": 4}
    problem = fragile_problem(rank, size, fails_at)
    solver = ksdmin.Solver(problem, options=options, subsets=subsets, rng=5)
    try:
        for _ in solver:
            pass
    except (RuntimeError, ValueError):
        failed = True
    for _ in solver:
        pass
    return failed, solver.result().fun


def nan_run(rank, size):
    X, y = (share(thing, rank, size) for thing in samples())
    y = y * (float("nan") if rank == 1 else 1.0)
    problem = ksdmin.from_torch(model(), nn.MSELoss(), (X, y), process_group=dist.group.WORLD)
    return run(problem, {"maxiter": 5})


def stopped_run(rank, size, how):
    """Rank 1 wants to end the run in iteration 3."""

    def callback(intermediate_result):
        if rank == 1 and intermediate_result.nit == 3:
            if how == "signal":
                os.kill(os.getpid(), signal.SIGINT)
            else:
                raise {"stop": StopIteration, "error": ZeroDivisionError("by zero")}[how]

    return run(grouped("net", rank, size), {"maxiter": 20}, callback=callback)


def timed_run(rank, size, late_rank):
    """The clock of one rank is an hour fast from iteration 3 on."""
    hours = [0.0]

    def callback(intermediate_result):
        if rank == late_rank and intermediate_result.nit == 3:
            hours[0] = 1.0

    clock = SimpleNamespace(perf_counter=lambda: 3600 * hours[0])
    with patch("ksdmin._run.evaluator.time", clock):
        options = {"maxiter": 6, "maxtime": 60.0}
        return run(grouped("net", rank, size), options, callback=callback)


def killed_run(rank, size, options, victim, arguments=None):
    """One rank is killed in iteration 4; the iterates that rank 0 has seen come with the error."""
    iterates = []

    def callback(intermediate_result):
        iterates.append(np.asarray(intermediate_result.x))
        if rank == victim and intermediate_result.nit == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        problem = grouped("net", rank, size, **(arguments or {}))
        run(problem, options, some_sets(), callback=callback)
    except RuntimeError as error:
        return str(error), iterates


def with_other_arguments(rank, size, what):
    """Arguments that differ between the ranks."""
    problem = grouped("net", rank, size, **({"rng": None} if what == "rng" else {}))
    x0 = problem.x0 + (rank if what == "x0" else 0.0)
    options = {"maxiter": 4 + (rank if what == "maxiter" else 0)}
    rng = None if what == "rng" else 0
    subsets = ksdmin.Subsets(N, 0.5, 0.3, 0.3)
    res = ksdmin.minimize(problem, x0, options=options, subsets=subsets, rng=rng)
    return np.asarray(res.x)


def with_other_models(rank, size, what):
    """Models, or weights of blocks, that differ between the ranks."""
    X, y = samples()
    group = dist.group.WORLD
    if what == "weights":
        blocks = [(interior, X, 1.0 + rank)]
        return ksdmin.from_torch(model(), residuals=blocks, process_group=group)
    torch.manual_seed(rank)
    net = nn.Linear(FEATURES, 1 + (rank if what == "shape" else 0)).double()
    problem = ksdmin.from_torch(net, nn.MSELoss(), (X, y), process_group=group)
    return np.asarray(problem.x0)


def resumed_run(rank, size, path, options):
    res = ksdmin.resume(path, grouped("net", rank, size), options=options,
                        subsets=some_sets())  # fmt: skip
    return res.fun, res.nit


def saved_by_solver(rank, size, path):
    solver = ksdmin.Solver(grouped("net", rank, size), options={"maxiter": 9}, rng=5)
    next(solver)
    solver.save(path)
    again = ksdmin.Solver.load(path, grouped("net", rank, size))
    return np.asarray(solver.result().x), np.asarray(again.result().x)


class Rows(TensorDataset):
    """A Dataset that is read sample by sample."""


def shares_of_a_loader(rank, size, workers):
    """A DataLoader with a DistributedSampler: the mean over all samples, each once."""
    dataset = Rows(*samples())
    sampler = DistributedSampler(dataset, size, rank)
    loader = DataLoader(dataset, batch_size=10, sampler=sampler, num_workers=workers)
    problem = ksdmin.from_torch(model(), nn.MSELoss(), loader, process_group=dist.group.WORLD)
    return problem.subsets.n, problem.value(problem.x0)


def wrapped_model(rank, size, process_group):
    """A model in DistributedDataParallel."""
    X, y = (share(thing, rank, size) for thing in samples())
    net = DistributedDataParallel(model())
    group = dist.group.WORLD if process_group else None
    problem = ksdmin.from_torch(net, nn.MSELoss(), (X, y), process_group=group)
    problem.load(problem.x0 * 0)
    return problem.value(problem.x0), float(net.module[0].weight.detach().abs().max())


def draws_in_group(rank, size):
    """Values of a net with dropout, on two sets that have the same rows in each rank."""
    net = nn.Sequential(nn.Linear(FEATURES, 50), nn.Dropout(0.5), nn.Linear(50, 1)).double()
    X, y = samples()
    X, y = X[:20], y[:20]
    problem = ksdmin.from_torch(net, nn.MSELoss(), (X, y), process_group=dist.group.WORLD)
    halves = [np.arange(20), np.arange(20, 40)]
    return [problem.value(problem.x0, half) for half in (*halves, slice(None))]


def resumed_run_alone(path, options):
    """The rest of a saved run, in one process without a group."""
    res = ksdmin.resume(path, problem(), options=options, subsets=some_sets())
    return res.fun, res.nit
