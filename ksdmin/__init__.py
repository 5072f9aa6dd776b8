"""Second-order minimisation, with the interface of scipy.optimize.minimize.

For functions, means over many samples, sums of squares, and models of torch and jax. The method is
Krylov Subspace Descent (KSD), with further kinds of second-order steps. Begin with `minimize`.
"""

from importlib import import_module as _import_module
from typing import Any as _Any

from ksdmin._adapters.entry import from_autograd, from_jax, from_torch
from ksdmin._covariance import covariance
from ksdmin._ksd.presets import PAPER
from ksdmin._least_squares.curve_fit import curve_fit
from ksdmin._least_squares.least_squares import least_squares
from ksdmin._minimize import ksd, minimize
from ksdmin._options import HFOptions, Options
from ksdmin._options import nearest as _nearest
from ksdmin._problem.entry import as_problem
from ksdmin._problem.protocol import Jacobian, Problem, Traits
from ksdmin._problem.subsets import Subsets
from ksdmin._result import History, Status
from ksdmin._solver import Solver, resume

__version__ = "0.1.0.dev0"

__all__ = [
    "Jacobian",
    "PAPER",
    "HFOptions",
    "History",
    "Options",
    "Problem",
    "Solver",
    "Status",
    "Subsets",
    "Traits",
    "as_problem",
    "covariance",
    "curve_fit",
    "from_autograd",
    "from_jax",
    "from_torch",
    "ksd",
    "least_squares",
    "minimize",
    "resume",
]


def __getattr__(name: str) -> _Any:
    if name in ("plotting", "torch"):  # only when it is used: it imports torch
        return _import_module(f"ksdmin.{name}")
    hint = " (it is ksdmin.torch.KSD)" if name == "KSD" else _nearest(name, __all__)
    raise AttributeError(f"module 'ksdmin' has no attribute {name!r}{hint}")
