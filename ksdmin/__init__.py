"""Krylov Subspace Descent for sums of losses and plain functions, behind SciPy's door."""

from ksdmin._adapters import from_autograd, from_jax, from_torch
from ksdmin._ksd.policies import PAPER
from ksdmin._minimize import ksd, minimize
from ksdmin._options import Options
from ksdmin._problem.functions import Problem, as_problem
from ksdmin._problem.subsets import Subsets
from ksdmin._result import History, Status

__version__ = "0.1.0.dev0"

__all__ = [
    "PAPER",
    "History",
    "Options",
    "Problem",
    "Status",
    "Subsets",
    "as_problem",
    "from_autograd",
    "from_jax",
    "from_torch",
    "ksd",
    "minimize",
]
