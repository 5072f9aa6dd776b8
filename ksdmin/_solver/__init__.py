"""One run: its set-up, its loop, who watches it, its result."""

from ksdmin._solver.methods import METHODS
from ksdmin._solver.setup import make_run

__all__ = ["METHODS", "make_run"]
