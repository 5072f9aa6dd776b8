"""Very many iterations: memory, and what is saved, stay as they are."""

import tracemalloc

import numpy as np
import pytest

import ksdmin

ROWS = 40


def endless(**options):
    """A run on samples that never converges."""
    X = np.random.default_rng(0).standard_normal((ROWS, 3))

    def fun(w, idx):
        return float(np.mean(np.abs(X[idx] @ w - 1) ** 1.5))

    def jac(w, idx):
        r = X[idx] @ w - 1
        return X[idx].T @ (1.5 * np.sign(r) * np.abs(r) ** 0.5) / len(r)

    sets = ksdmin.Subsets(ROWS, gradient=10, curvature=5, search=5)
    return ksdmin.Solver(
        ksdmin.as_problem(fun, jac=jac, subsets=sets), np.zeros(3), rng=0,
        options={"gtol": 0, "without": ["set_sizes", "stall"], **options},
    )  # fmt: skip


def sizes_along(iterations, path, every):
    """(bytes in memory, bytes of the file, evaluations) after every so many iterations."""
    solver = endless(maxiter=iterations, history=100)
    tracemalloc.start()
    try:
        for iteration in solver:
            if iteration.nit % every == 0:
                solver.save(path)
                yield tracemalloc.get_traced_memory()[0], path.stat().st_size, iteration.nfev
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "iterations", [240, pytest.param(10_000, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_a_long_run_takes_no_more_memory_with_time(iterations, tmp_path):
    every = iterations // 8
    seen = list(sizes_along(iterations, tmp_path / "run.ksd", every))
    memory, files, evaluations = (np.array(column) for column in zip(*seen, strict=True))
    assert len(seen) == 8
    assert memory[4:].max() <= memory[:4].max() + 100_000  # bytes: 10,000 records take 5 million
    assert files.max() <= 1.5 * files[1]
    work = np.diff(evaluations)
    assert work.max() <= 2 * work.min()  # an iteration is as dear late as early


def test_the_history_of_a_long_run_is_whole_where_nobody_asks_for_less():
    solver = endless(maxiter=150)
    assert len(list(solver)) == 150
    assert len(solver.result().history) == 151
