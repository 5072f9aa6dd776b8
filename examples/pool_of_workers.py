"""A sum of losses that a pool of workers evaluates: plain callables, no process group.

    python -m examples.pool_of_workers             # joblib's processes
    python -m examples.pool_of_workers --dask      # a local cluster of dask.distributed

Whoever has a pool already (joblib, dask, ray, a batch system) hands ksdmin functions of (x, idx)
that divide the samples idx among the workers. Two things matter. The chunks do not depend on the
number of workers, and their sums are added in a fixed order: so the run is the same, bit for bit,
on one worker and on a thousand. And a worker gets the number of a chunk, not its data: those it
makes or reads itself, once.

For models of torch use ``from_torch(..., process_group=...)`` instead: the parameters then stay in
the workers, and only sums travel.
"""

import argparse
from functools import lru_cache

import numpy as np

import ksdmin

SAMPLES, FEATURES, CHUNK = 20_000, 30, 2_500


@lru_cache(maxsize=SAMPLES // CHUNK)
def chunk_data(number):
    """The samples of one chunk; a real program would read a file here."""
    rng = np.random.default_rng(number)
    X = rng.standard_normal((CHUNK, FEATURES))
    y = rng.random(CHUNK) < 1 / (1 + np.exp(-X @ np.linspace(-1, 1, FEATURES)))
    return X, np.where(y, 1.0, -1.0)


def chunk_sums(number, rows, x, v=None):
    """The losses and gradients of some rows of a chunk, summed; with `v`, the Hessian times v."""
    X, y = chunk_data(number)
    X, y = X[rows], y[rows]
    margins = y * (X @ x)
    p = 1 / (1 + np.exp(margins))
    if v is not None:
        return X.T @ (p * (1 - p) * (X @ v))
    return np.append(np.logaddexp(0, -margins).sum(), X.T @ (-y * p))


def by_chunk(idx):
    """(chunk, rows in it) for all chunks that hold samples of idx, in the order of the chunks."""
    rows = np.arange(SAMPLES)[idx]
    return [
        (int(number), rows[rows // CHUNK == number] % CHUNK) for number in np.unique(rows // CHUNK)
    ]


class PooledLoss:
    """The regularised mean loss, whose chunks `submit` evaluates.

    Parameters
    ----------
    submit : callable
        (function, list of arguments) -> the results, in the order of the arguments.
    """

    penalty = 1e-4

    def __init__(self, submit):
        self._submit = submit

    def _mean(self, idx, *vectors):
        parts = by_chunk(idx)
        results = self._submit(chunk_sums, [(*part, *vectors) for part in parts])
        total = results[0]
        for result in results[1:]:  # always in the same order: sums of floats depend on it
            total = total + result
        return total / sum(len(rows) for _, rows in parts)

    def value_and_gradient(self, x, idx):
        mean = self._mean(idx, x)
        return mean[0] + self.penalty / 2 * (x @ x), mean[1:] + self.penalty * x

    def product(self, x, v, idx):
        return self._mean(idx, x, v) + self.penalty * v


def minimized(submit):
    loss = PooledLoss(submit)
    return ksdmin.minimize(
        loss.value_and_gradient,
        np.zeros(FEATURES),
        jac=True,
        hessp=loss.product,
        subsets=SAMPLES,
        rng=0,
    )


def in_this_process(function, arguments):
    return [function(*args) for args in arguments]


def with_joblib(workers):
    from joblib import Parallel, delayed

    with Parallel(n_jobs=workers) as parallel:  # the workers stay, with the chunks they have read
        return minimized(lambda f, arguments: parallel(delayed(f)(*args) for args in arguments))


def with_dask(workers):
    from dask.distributed import Client

    with Client(n_workers=workers, threads_per_worker=1) as client:

        def submit(function, arguments):
            return client.gather([client.submit(function, *args) for args in arguments])

        return minimized(submit)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dask", action="store_true", help="dask.distributed in place of joblib")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    alone = minimized(in_this_process)
    pooled = (with_dask if args.dask else with_joblib)(args.workers)
    print(pooled)
    print("the same, bit for bit, as without the pool:", bool((pooled.x == alone.x).all()))


if __name__ == "__main__":
    main()
