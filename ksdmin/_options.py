"""The options of method "ksd": their meaning, their defaults, their checks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from scipy.optimize import OptimizeWarning

from ksdmin._ksd.policies import DEFAULT, Policies


@dataclass(frozen=True)
class Options:
    """What ``options=`` of ``minimize`` may hold.

    Attributes
    ----------
    maxiter : float, optional
        The largest number of iterations: 200 n, but 1000 with subsets, where not given.
    maxfun : float
        The largest number of values computed; looked at between evaluations.
    maxtime : float
        The most seconds; looked at between evaluations and products.
    gtol : float
        Success when the largest magnitude in the gradient on the whole set is at most this.
    ftol : float
        Success when an iteration lowers the value on the whole set by no more than
        ``ftol * max(|f_old|, |f_new|, 1)``. 0 turns it off.
    xtol : float
        Success when a step is no longer than ``xtol * max(1, |x|)`` (Euclidean norms). 0 turns
        it off. Neither this test nor that of `ftol` is made of a step that was judged on a part of
        the set, or, by "ksd", that `damping` kept short.
    krylov_dim : int, optional
        K, the (largest) dimension of the Krylov space. Where not given, 100; with subsets, 20 at
        first (for nets up to 40: one for every 1000 samples), and up to 100 where that limits the
        steps (for nets up to twice the first), or the curvature is of everything, as far as 1 GiB
        holds the basis.
    memory : int, optional
        How many previous directions are adjoined: where not given, 5 as long as the curvature is
        of a sample, otherwise 1.
    memory_budget : float, optional
        The most bytes for the basis, its products, the previous directions and the model of
        `pairs`: the model goes first, then K and the memory shrink. No bound where not given.
    pairs : int, optional
        How many pairs (step, change of the gradient) the quasi-Newton model keeps that
        preconditions the Krylov space, and stands in for it as long as that pays: 2 n, but
        at least 10 and at most 40, where not given; 0 does without. It learns where gradient and
        curvature are of one set (always, without subsets).
    floor : float
        Eigenvalues of the curvature in the subspace, and entries of the preconditioner (unless
        `diagonal_power` is below 1), are kept above this share of the largest.
    diagonal_power : float, optional
        The power that the diagonal of the preconditioner is raised to; where it is below 1, a
        tenth of the mean is added first. Where not given, 0.75 for the diagonal of a Fisher
        matrix and for "hf" (which adds its damping instead), 1 for your own.
    damping : float, optional
        The first weight of ``|d|^2 / 2`` beside the loss of a step d, with subsets; the run adjusts
        it. Where not given: for a model that is not linear in its parameters (``from_torch`` and
        the like) the one that bounds the first step to a hundredth of ``|x0|``; for anything
        else 0; for "hf" 45.
    inner_maxiter : int, optional
        The largest number of iterations of the inner BFGS, where not given as many as the Krylov
        space ever may have vectors; of "hf"'s conjugate gradients, 250 where not given.
    disp : bool
        Print a summary at the end.
    progress : bool
        Show a progress bar (needs tqdm).
    return_all : bool
        Keep all iterates, as ``res.allvecs``.
    policies : Policies
        What differs between the paper's algorithm and the default; set by ``ksdmin.PAPER``.

    Examples
    --------
    >>> import ksdmin
    >>> options = {"gtol": 1e-9, "krylov_dim": 10}
    >>> ksdmin.minimize(lambda x: x @ x, [1.0], jac=lambda x: 2 * x, options=options).success
    True
    """

    maxiter: float | None = None
    maxfun: float = math.inf
    maxtime: float = math.inf
    gtol: float = 1e-5
    ftol: float = 0.0
    xtol: float = 0.0
    krylov_dim: int | None = None
    memory: int | None = None
    memory_budget: float | None = None
    pairs: int | None = None
    floor: float = 1e-10
    diagonal_power: float | None = None
    damping: float | None = None
    inner_maxiter: int | None = None
    disp: bool = False
    progress: bool = False
    return_all: bool = False
    policies: Policies = DEFAULT

    def __post_init__(self) -> None:
        for name in ("maxfun", "maxtime", "gtol", "ftol", "xtol", "floor"):
            value = getattr(self, name)
            if value is None:
                object.__setattr__(self, name, getattr(type(self), name))
            elif not (isinstance(value, (int, float, np.number)) and value >= 0):
                raise ValueError(f"option {name}={value!r}: expected a number that is at least 0")
        if not 1e-14 <= self.floor < 1:  # below that, rounding decides whether H_hat is definite
            raise ValueError(f"option floor={self.floor!r}: expected a share from 1e-14 to 1")
        # SciPy's callers pass maxiter=-1 and 100.1; the loop takes any number.
        limits = {
            "damping": 0,
            "diagonal_power": 0,
            "krylov_dim": 1,
            "inner_maxiter": 1,
            "memory": 0,
            "pairs": 0,
            "memory_budget": 0,
            "maxiter": -math.inf,
        }
        for name, least in limits.items():
            value = getattr(self, name)
            if value is not None and not (
                isinstance(value, (int, float, np.number)) and value >= least
            ):
                raise ValueError(f"option {name}={value!r}: expected a number from {least} up")


def parse_options(
    given: Mapping[str, Any] | None, tol: float | None = None, *, frames: int = 2
) -> Options:
    """The user's options, with SciPy's warning for those that are not known.

    `frames` is how many calls up the user's own line is.
    """
    given = dict(given or {})
    if tol is not None:
        given.setdefault("gtol", tol)
    known = {field.name for field in fields(Options)}
    unknown = [name for name in given if name not in known]
    if unknown:
        warnings.warn(
            f"Unknown solver options: {', '.join(unknown)}", OptimizeWarning, stacklevel=frames + 1
        )
    return Options(**{name: value for name, value in given.items() if name in known})
