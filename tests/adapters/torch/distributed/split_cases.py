"""Runs whose vectors are split over processes."""

import numpy as np
import torch

import ksdmin
from ksdmin._problem.counting import Counts
from tests.adapters.torch.distributed import block_cases, cases


def grouped(kind, rank, size, **arguments):
    if kind == "blocks":
        return block_cases.grouped(rank, size, split=True, **arguments)
    return cases.grouped(kind, rank, size, split=True, **arguments)


def alone(kind):
    return block_cases.problem() if kind == "blocks" else cases.problem(kind)


def samples(kind):
    return block_cases.N if kind == "blocks" else cases.N


def in_space(problem, counts):
    """The problem as a run has it, and its space."""
    space = problem.space_of_run(problem.x0)
    return problem.in_space(space).counting(counts), space


def vectors(n):
    """Some vectors of length n; one has a NaN in its last entry."""
    rng = np.random.default_rng(6)
    U, W = (torch.from_numpy(rng.standard_normal((3, n))) for _ in range(2))
    broken = U[0].clone()
    broken[-1] = torch.nan
    return U, W, broken


def of_space(space, n):
    """Everything that is computed from all entries of vectors."""
    U, W, broken = (space.taken(u) for u in vectors(n))
    found = {
        "vector": space.inner(U[0], W[0]),
        "rows": space.inner(U, W[0]),
        "gram": space.gram(U, W),
        "pairs": space.gram(torch.stack([U, W]), torch.stack([U, W])),
        "dots": space.dots(U, W[1]),
        "norm": space.norm(U[0]),
        "max_abs": space.max_abs(U[0]),
        "largest": space.largest(-U[0].abs()),
        "mean": space.mean(U[0]),
        "broken": space.max_abs(broken),
        "unit": space.given(space.unit(n - 1)),
        "whole": space.given(U[1]),
    }
    return {name: np.asarray(value) for name, value in found.items()}


def space_in_group(rank, size):
    problem = grouped("net", rank, size)
    space = problem.space_of_run(problem.x0)
    return of_space(space, space.n) | {"length": space.length, "rows": space.rows(2).shape[-1]}


def quantities(problem, space, idx):
    """The verbs at a point beside x0, as whole vectors."""
    rng = np.random.default_rng(7)
    u = torch.from_numpy(rng.standard_normal(space.n))
    x = space.taken(torch.full((space.n,), 0.05, dtype=torch.float64) + 0.1 * u)
    value, g, D = problem.value_and_gradient(x, idx, diagonal=True)
    product = problem.curvature(x, idx)
    found = {"value": problem.value(x, idx), "v": value}
    wholes = {"g": g, "D": D, "product": product(space.taken(u)), "again": product(g)}
    found |= {name: space.given(vector) for name, vector in wholes.items()}
    return {name: np.asarray(value) for name, value in found.items()}


def sets(kind):
    return block_cases.sets() if kind == "blocks" else cases.sets()


def quantities_in_group(rank, size, kind):
    problem, space = in_space(grouped(kind, rank, size), Counts())
    return [quantities(problem, space, idx) for idx in sets(kind)]


def run(problem, kind, options, sizes, **more):
    subsets = None if sizes is None else ksdmin.Subsets(samples(kind), *sizes)
    return cases.run(problem, options, subsets, **more)


def run_in_group(rank, size, kind, options, sizes, more):
    return run(grouped(kind, rank, size), kind, options, sizes, **more)


def payloads(rank, size):
    """What each verb, and the sums of the space, have sent: (messages, bytes)."""
    counts = Counts()
    problem, space = in_space(grouped("net", rank, size), counts)
    x, whole = space.taken(grouped("net", rank, size).x0), slice(None)
    product = problem.curvature(x, whole)
    actions = {
        "value": lambda: problem.value(x, whole),
        "gradient": lambda: problem.value_and_gradient(x, whole),
        "diagonal": lambda: problem.value_and_gradient(x, whole, diagonal=True),
        "product": lambda: product(x),
        "inner": lambda: space.inner(space.rows(5), x),
        "max_abs": lambda: space.max_abs(x),
    }
    found = {}
    for name, action in actions.items():
        before = counts.reductions, counts.reduced_bytes
        action()
        found[name] = counts.reductions - before[0], counts.reduced_bytes - before[1]
    return space.n, found


def run_without_small_sums(rank, size, sizes):
    """The columns of a run's history, whose bytes leave out the sums of its space."""
    from unittest.mock import patch

    from ksdmin._adapters.torch.distributed.split import SplitSpace

    def silent(verb):
        def computed(space, *args):
            counts, space.counts = space.counts, Counts()
            try:
                return verb(space, *args)
            finally:
                space.counts = counts

        return computed

    options = {
        "maxiter": 6,
        "pairs": 0,
        "without": ["set_sizes", "forcing", "newton", "gauss-newton"],
    }
    quiet = {
        name: silent(getattr(SplitSpace, name)) for name in ("inner", "gram", "largest", "mean")
    }
    with patch.multiple(SplitSpace, **quiet):
        return run_in_group(rank, size, "net", options, sizes, {})


def resumed(rank, size, path, split, options):
    problem = cases.grouped("net", rank, size, split=split)
    subsets = ksdmin.Subsets(cases.N, 1.0, 0.3, 0.3)
    res = ksdmin.resume(path, problem, options=options, subsets=subsets)
    return res.fun, res.nit


def with_callback(rank, size, everywhere):
    """A callback in every process, or in the first only."""
    seen = []

    def callback(intermediate_result):
        seen.append((intermediate_result.x.numel(), intermediate_result.jac.numel()))

    given = callback if everywhere or rank == 0 else None
    run(grouped("net", rank, size), "net", {"maxiter": 3}, None, callback=given)
    return seen


def with_bounds(rank, size):
    problem = grouped("net", rank, size)
    ksdmin.minimize(problem, bounds=[(-1, 1)] * problem.x0.numel(), options={"maxiter": 1})


def failing_run(rank, size, fails_at):
    """A net that fails in the last rank."""
    import torch.distributed as dist
    from torch import nn

    net = cases.Fragile()
    X, y = (cases.share(thing, rank, size) for thing in cases.samples())
    problem = ksdmin.from_torch(
        net, nn.MSELoss(), (X, y), process_group=dist.group.WORLD, split=True
    )
    net.calls, net.fails_at = 0, fails_at if rank == size - 1 else None
    return cases.run(problem, {"maxiter": 30}, ksdmin.Subsets(cases.N, 1.0, 0.3, 0.3))


def is_split(rank, size, split, memory_budget):
    problem = cases.grouped("net", rank, size, split=split, memory_budget=memory_budget)
    return problem.split


def kept_lengths(rank, size):
    """The length of this process's slices, and of all vectors that the state of a run has."""
    subsets = ksdmin.Subsets(cases.N, 1.0, 1.0, 1.0, False)
    problem = grouped("net", rank, size)
    solver = ksdmin.Solver(problem, options={"maxiter": 9}, rng=5, subsets=subsets)
    for _ in range(4):
        next(solver)
    state = solver._loop.state
    here, pairs = state.here, state.model.pairs.array
    vectors = [here.x, here.gradient, here.diagonal, *state.d_prev, state.ledger.best[0], pairs]
    return solver._loop.run.space.length, {vector.shape[-1] for vector in vectors}


def replayed(rank, size):
    """The same step, made twice: what is counted in it must be the same."""
    solver = ksdmin.Solver(grouped("net", rank, size), options={"maxiter": 9}, rng=5)
    for _ in range(3):
        next(solver)
    loop = solver._loop
    twice = [loop.method.step(loop.run, loop.state) for _ in range(2)]
    return [(np.asarray(state.here.x), state.ledger.counts) for state in twice]
