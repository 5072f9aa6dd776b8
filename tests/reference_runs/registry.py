"""The reference runs by name, and how one is made: alone on one thread, whatever ran before."""

from collections.abc import Callable
from contextlib import contextmanager

import torch
from scipy.optimize import OptimizeResult
from threadpoolctl import threadpool_limits

RUNS: dict[str, Callable[[], OptimizeResult]] = {}


def run(make, name=None):
    """Register a run, under its own name or another; usable as a decorator."""
    name = name or make.__name__
    if name in RUNS:
        raise ValueError(f"two runs are named {name!r}")
    RUNS[name] = make
    return make


def execute(name):
    with one_thread():
        return RUNS[name]()


@contextmanager
def one_thread():
    """With several threads, sums are split where the number of threads says."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def jax_float32():
    """Jax as the runs want it: float32, and compiled lightly, which takes most of the time."""
    import jax

    settings = {"jax_enable_x64": False, "jax_disable_most_optimizations": True}
    before = {name: jax.config.read(name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
