"""All reference runs: importing a file of them registers what it has."""

from tests.reference_runs import boxes, functional, plain, sums, torch_nets
from tests.reference_runs.registry import RUNS, execute

FILES = (plain, boxes, sums, torch_nets, functional)

__all__ = ["FILES", "RUNS", "execute"]
