"""One run: its set-up, its loop, who watches it, its result."""

from ksdmin._solver.loop import make_run
from ksdmin._solver.methods import METHODS

__all__ = ["METHODS", "make_run"]
