"""The options of the methods: their meaning, their defaults, their checks. Plain data."""

from __future__ import annotations

import difflib
import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar

import numpy as np
from scipy.optimize import OptimizeWarning

PRESETS = ("default", "paper")
# The kinds of step of method "ksd", and the one of method "hf"
KINDS = ("krylov", "newton", "quasi-newton", "gauss-newton", "escape")
HESSIAN_FREE = "hessian-free"
RULES = ("damping", "finer_arithmetic", "forcing", "set_sizes", "stall", "width")
_NO_RATE = "there is no learning rate: the length of a step follows from the curvature"
_NO_EPOCHS = "iterations are counted, not epochs: maxiter=..., or seconds, maxtime=..."
# Names in other libraries, and options that only they have.
ELSEWHERE = {
    "lr": _NO_RATE,
    "learning_rate": _NO_RATE,
    "epochs": _NO_EPOCHS,
    "n_epochs": _NO_EPOCHS,
    "batch_size": "there are no batches; subsets=ksdmin.Subsets(n, ...) has the sizes of sets",
    "max_iter": "here it is called maxiter",
    "weight_decay": "add the penalty to the objective; from_torch and the like have l2=...",
    "tolerance_grad": "here it is called gtol",
    "tolerance_change": "here it is called ftol (of the value) or xtol (of the unknowns)",
    "history_size": "here it is called pairs",
    "maxcor": "here it is called pairs",
    "line_search_fn": "there is one search only",
}


def hint(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown option, in brackets; empty if there is none."""
    return f" ({ELSEWHERE[name]})" if name in ELSEWHERE else nearest(name, known)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: ``" (did you mean 'gtol'?)"``; empty if none is similar."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


class NotGiven(float):
    """A default that can be recognised as not given by the user."""


@dataclass(frozen=True, repr=False)
class MethodOptions:
    """The options of every method."""

    maxiter: float | None = None
    maxfun: float = math.inf
    maxtime: float = math.inf
    gtol: float = NotGiven(1e-5)
    gtol_rel: float = 0.0
    ftol: float = NotGiven(0.0)
    xtol: float = NotGiven(0.0)
    fmin: float = -math.inf
    validation: Callable[..., Any] | None = None
    patience: int | None = None
    average: float | None = None
    history: int | None = None
    disp: bool = False
    progress: bool = False
    return_all: bool = False
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: float = 60.0

    def __post_init__(self) -> None:
        for name in ("maxiter", "maxfun"):
            self._check_count(name)
        for name in ("maxfun", "maxtime", "gtol", "gtol_rel", "ftol", "xtol", "fmin"):
            self._check(name, -math.inf if name == "fmin" else 0, default=True)
        if not self.gtol_rel < 1:
            self._refuse("gtol_rel", "a share, less than 1")
        for name in ("disp", "progress", "return_all"):  # SciPy's callers pass integers, too
            if not isinstance(getattr(self, name), (bool, int, np.bool_, np.integer, type(None))):
                self._refuse(name, "True or False", TypeError)
        if self.checkpoint is not None and not isinstance(self.checkpoint, (str, os.PathLike)):
            self._refuse("checkpoint", "the path of a file", TypeError)
        if not _is_number(self.checkpoint_every) or not self.checkpoint_every > 0:
            expected = "iterations as an int from 1 up, or seconds as a float above 0"
            self._refuse("checkpoint_every", expected)
        self._check("patience", 1, whole=True)
        self._check("history", 2, whole=True)
        if self.average is not None and not (_is_number(self.average) and 0 < self.average < 1):
            self._refuse("average", "a number between 0 and 1")
        if self.validation is not None and not callable(self.validation):
            raise TypeError(
                "option validation: pass a function of x, such as the method `value` of a problem "
                "of other samples (ksdmin.from_torch(net, loss, (X, y)).value), not "
                f"{type(self.validation).__name__}"
            )
        if self.patience is not None and self.validation is None:
            raise ValueError("option patience: it needs the option validation, a function of x")

    def __repr__(self) -> str:
        """The options that were given; all of them would fill a screen."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        given = [
            f"{name}={value!r}"
            for name, value in values.items()
            if not isinstance(value, NotGiven) and value is not getattr(type(self), name)
        ]
        return f"{type(self).__name__}({', '.join(given)})"

    def _check_count(self, name: str) -> None:
        """Raise for a limit that is not a number (SciPy's callers pass -1, infinity and 100.1)."""
        value = getattr(self, name)
        if value is not None and not (_is_number(value) and value == value):
            self._refuse(name, "a whole number (1e3, too), or inf")
        if value is not None and abs(value) < math.inf:
            object.__setattr__(self, name, math.floor(value))  # at most 2.5 means at most 2

    def _check(
        self, name: str, least: float, *, whole: bool = False, default: bool = False
    ) -> None:
        """Raise for anything but a number from `least` up, or None, as it is or as the default."""
        value = getattr(self, name)
        if value is None:
            if default:
                object.__setattr__(self, name, getattr(type(self), name))
            return
        number = isinstance(value, (int, float, np.number)) and value >= least
        if number and whole:
            number = _is_number(value) and value < math.inf and value == int(value)
        if not number:
            self._refuse(name, f"a {'whole ' * whole}number from {least} up")
        if whole:
            object.__setattr__(self, name, int(value))  # 10.0 and numpy's 10 are 10

    def _refuse(self, name: str, expected: str, error: type[Exception] = ValueError) -> NoReturn:
        raise error(f"option {name}={getattr(self, name)!r}: expected {expected}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


@dataclass(frozen=True, repr=False)
class Options(MethodOptions):
    """What ``options=`` of ``minimize`` may hold for method "ksd": as a mapping, or as this object.

    Attributes
    ----------
    maxiter : float, optional
        The largest number of iterations; by default 200 n, and 1000 with subsets.
    maxfun : float
        The largest number of values; checked between evaluations.
    maxtime : float
        The most seconds; checked before every evaluation and product. A running evaluation is
        finished, and with samples the last step is judged.
    gtol : float
        Success when the largest magnitude in the gradient over all samples is at most this. (For
        ``as_problem(residuals=...)`` without subsets it is a cosine, 1e-10, as in
        :func:`least_squares`. For other residuals, tests that do not depend on units replace it,
        unless it, `ftol` or `xtol` is given: :doc:`/residuals`.)
    gtol_rel : float
        Success also when the largest magnitude in the gradient is at most this share of its value
        at x0. 0 turns the test off. (A gradient that is small everywhere passes `gtol` far from a
        minimum: then use ``gtol=0`` and this option.)
    ftol : float
        Success when an iteration lowers the value over all samples by at most
        ``ftol * max(|f_old|, |f_new|, 1)``. 0 turns the test off. (For residuals with up to 300
        unknowns 1e-13, and `xtol` 1e-10, as in :func:`least_squares`.)
    xtol : float
        Success when a step is at most ``xtol * max(1, |x|)`` long (Euclidean norms). 0 turns the
        test off. The tests `xtol` and `ftol` skip steps that were judged on a part of the samples,
        or that `damping` kept short.
    fmin : float
        Success when a value over all samples is at most this.
    validation : callable, optional
        ``validation(x) -> float``, such as the loss on other samples, after each iteration. The
        point where it was lowest is ``res.validation``, with `x`, `fun` and `nit`; all values are
        the column `validation` of the history.
    patience : int, optional
        The run ends when the validation value has not fallen for this number of iterations.
    average : float, optional
        Keep an exponential average of the iterates: each iteration keeps this share of the
        average before it. It begins with iteration ``1 / (1 - average)``. ``res.average`` has its
        `x` and `fun`; `validation` checks it, too.
    history : int, optional
        The most records in ``res.history``. If there are more, every second one is dropped, then
        every second one of the rest, and so on. By default all are kept.
    disp : bool
        Print a summary at the end.
    progress : bool
        Show a progress bar (needs tqdm).
    return_all : bool
        Keep all iterates, as ``res.allvecs``.
    checkpoint : path, optional
        A file that the run is saved to, for :func:`ksdmin.resume`. It must not exist yet.
    checkpoint_every : float or int
        The seconds (float) or iterations (int) between two files. A file is also written at the
        start, at the end, and when an exception passes.
    krylov_dim : int, optional
        K, the largest dimension of the Krylov space. By default 100. With subsets it is 20 (for
        nets up to 40, one for every 1000 samples), and up to 100 if more vectors gain enough (not
        for nets) or the curvature is that of all samples, as far as 1 GiB holds the basis.
    memory : int, optional
        The number of previous directions in the subspace. By default 5 while the curvature is that
        of a sample, otherwise 1.
    memory_budget : float, optional
        The most bytes for the basis, its products, the previous directions and the model of
        `pairs`. Pairs are dropped first, then K and the memory shrink. None: no bound.
    pairs : int, optional
        The number of pairs (step, change of the gradient) in the quasi-Newton model. It
        preconditions the Krylov space, and replaces it as long as that saves work. By default 40,
        and fewer for a plain function of more than 446 unknowns; 0 switches it off. It learns
        while gradient and curvature use the same samples (always, without subsets).
    floor : float, optional
        Eigenvalues of the curvature in the subspace, and entries of the preconditioner (unless
        `diagonal_power` is below 1), are kept above this share of the largest. By default 1e-10.
    diagonal_power : float, optional
        The power of the preconditioner's diagonal. If it is below 1, a tenth of the mean is added
        first. By default 0.75 for the diagonal of a Fisher matrix, and 1 for your own. If it is
        given, a net has a diagonal in place of Kronecker factors.
    damping : float, optional
        The first weight of ``|d|^2 / 2``, added to the loss of a step d, with subsets. The run
        adjusts it. By default it bounds the first step to a hundredth of ``|x0|`` for a model that
        is not linear in its parameters (``from_torch`` and the like, or ``as_problem(...,
        nonlinear=True)``), and is 0 otherwise.
    inner_maxiter : int, optional
        The largest number of iterations of BFGS in the subspace. By default the largest dimension
        of the Krylov space.
    preset : {"default", "paper"}
        The choices and rules of a run. "paper" is the algorithm of the paper; the same as
        ``options=ksdmin.PAPER``.
    without : sequence of str
        Kinds of step to leave out: "krylov", "newton" (directions from the whole curvature
        matrix), "quasi-newton", "gauss-newton" (from the Jacobian of residuals) and "escape" (from
        saddle points). Rules to switch off, to see what they do: "damping", "finer_arithmetic",
        "forcing" (always K vectors), "set_sizes", "stall" and "width" (then a space never
        has more vectors on samples than fit into two passes, and up to K on everything at once).

    Examples
    --------
    >>> import ksdmin
    >>> options = {"gtol": 1e-9, "krylov_dim": 10}
    >>> ksdmin.minimize(lambda x: x @ x, [1.0], jac=lambda x: 2 * x, options=options).success
    True
    >>> options = ksdmin.Options(gtol=1e-9, without=["forcing"])
    >>> ksdmin.minimize(lambda x: x @ x, [1.0], jac=lambda x: 2 * x, options=options).success
    True
    """

    krylov_dim: int | None = None
    memory: int | None = None
    memory_budget: float | None = None
    pairs: int | None = None
    floor: float | None = None
    diagonal_power: float | None = None
    damping: float | None = None
    inner_maxiter: int | None = None
    preset: str = "default"
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in {"krylov_dim": 1, "inner_maxiter": 1, "memory": 0, "pairs": 0}.items():
            self._check(name, least, whole=True)
        for name in ("damping", "diagonal_power", "memory_budget", "floor"):
            self._check(name, 0)
        # Below this, rounding decides whether H_hat is definite.
        if self.floor is not None and not 1e-14 <= self.floor < 1:
            self._refuse("floor", "a share from 1e-14 to 1")
        _check_name("preset", self.preset, PRESETS)
        given: Any = self.without
        if not isinstance(given, (str, Sequence, Set, type(None))):
            self._refuse("without", "the names of rules", TypeError)
        names = (given,) if isinstance(given, str) else tuple(given or ())
        for name in names:
            _check_name("without", name, (*RULES, *KINDS))
        if set(KINDS) - {"escape"} <= set(names):
            raise ValueError(f"option without={names!r}: no kind of step is left")
        object.__setattr__(self, "without", names)


@dataclass(frozen=True, repr=False)
class HFOptions(MethodOptions):
    """What ``options=`` of ``minimize`` may hold for method "hf": as a mapping, or as this object.

    Attributes
    ----------
    maxiter, maxfun, maxtime, gtol, gtol_rel, ftol, xtol, fmin, validation, patience, average, \
history, disp, progress, return_all, checkpoint, checkpoint_every
        As in :class:`Options`.
    damping : float
        The first weight of ``|d|^2 / 2`` in the quadratic model; the run adjusts it.
    diagonal_power : float
        The power that the diagonal of the preconditioner, plus the damping, is raised to.
    inner_maxiter : int
        The largest number of iterations of the conjugate gradients.

    Examples
    --------
    >>> import ksdmin
    >>> ksdmin.HFOptions(damping=1.0).inner_maxiter
    250
    """

    damping: float = 45.0
    diagonal_power: float = 0.75
    inner_maxiter: int = 250

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("damping", 0, default=True)
        self._check("diagonal_power", 0, default=True)
        self._check("inner_maxiter", 1, whole=True, default=True)


Chosen = TypeVar("Chosen", bound=MethodOptions)
METHODS: dict[str, type[MethodOptions]] = {"ksd": Options, "hf": HFOptions}


def _check_name(option: str, name: Any, known: tuple[str, ...]) -> None:
    if not isinstance(name, str) or name not in known:
        expected = ", ".join(map(repr, known))
        hint = nearest(str(name), known)
        raise ValueError(f"option {option}={name!r}: expected one of {expected}{hint}")


def parse_options(
    given: Mapping[str, Any] | MethodOptions | None,
    kind: type[Chosen],
    tol: float | None = None,
    *,
    frames: int = 2,
) -> Chosen:
    """The user's options, with SciPy's warning for those that are not known.

    Raises for an option of another method, which would have no effect. `frames` is how many calls
    up the user's line is.
    """
    if isinstance(given, kind):
        default = isinstance(given.gtol, NotGiven)
        return replace(given, gtol=tol) if default and tol is not None else given
    if isinstance(given, (str, MethodOptions)):
        raise TypeError(
            f"options: expected a mapping or ksdmin.{kind.__name__}, not {given!r}{_paper(given)}"
        )
    given = dict(given or {})
    if tol is not None:
        given.setdefault("gtol", tol)
    known = tuple(kind.__dataclass_fields__)
    unknown = [name for name in given if name not in known]
    useless = [
        name for name in unknown if any(name in of.__dataclass_fields__ for of in METHODS.values())
    ]
    if useless:
        method = next(name for name, options in METHODS.items() if options is kind)
        raise ValueError(
            f"options without effect on method {method!r}: {', '.join(useless)}. Leave them out; "
            f"it takes {', '.join(known)}"
        )
    if unknown:
        hints = ", ".join(
            f"{name}{hint(str(name), known)}{_paper(given[name])}" for name in unknown
        )
        warnings.warn(f"Unknown solver options: {hints}", OptimizeWarning, stacklevel=frames + 1)
    return kind(**{name: value for name, value in given.items() if name in known})


def _paper(given: Any) -> str:
    """A hint for users who look for the paper's algorithm."""
    asked = isinstance(given, str) and given.lower() == "paper"
    return " (for the paper's algorithm: options=ksdmin.PAPER)" if asked else ""
