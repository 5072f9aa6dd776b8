"""A problem is a few verbs at (x, idx); SciPy-style callables become one here.

The core calls these verbs and nothing else. `idx` names the samples that a verb takes its mean
over: `WHOLE` (``slice(None)``, so that ``X[idx]`` copies nothing), a sorted int64 array, or
whatever object the user's own subsets hold.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from scipy.optimize import HessianUpdateStrategy, OptimizeWarning

from ksdmin._problem import differences as _differences
from ksdmin._problem.arrays import Array, Small, Space, as_scalar
from ksdmin._problem.box import Box
from ksdmin._problem.subsets import WHOLE, Subsets, as_subsets

Product = Callable[[Array], Array]


@runtime_checkable
class Problem(Protocol):
    """What a method needs to know of an objective: its verbs at (x, idx), means over idx.

    Optional, looked up by name: ``x0`` (where to start), ``subsets`` (the default sets),
    ``has_diagonal`` (True: ``value_and_gradient`` knows the curvature diagonal),
    ``separate_gradient`` (True: ``value`` alone is cheaper, and a gradient asked for at the same
    point afterwards costs no second value), ``noise`` (relative rounding error of the values),
    ``sharper()`` (the same problem with less of it, or None: what a run turns to when its steps
    come to gain little more than that),
    ``gradient_accuracy`` and ``product_accuracy`` (1.0: exact to rounding; by differences the
    relative error is a smaller power of eps),
    ``value_and_projected_gradient(x, idx, V)`` (the value and V^T g, where that is cheaper than
    g), ``counting(counts)`` (a copy of the problem, for one run, that counts in `counts`).

    Examples
    --------
    >>> import numpy as np, ksdmin
    >>> class Bowl:
    ...     def value(self, x, idx):
    ...         return x @ x
    ...     def value_and_gradient(self, x, idx, *, diagonal=False):
    ...         return x @ x, 2 * x
    ...     def curvature(self, x, idx):
    ...         return lambda v: 2 * v
    >>> isinstance(Bowl(), ksdmin.Problem)
    True
    >>> ksdmin.minimize(Bowl(), np.ones(3)).success
    True
    """

    def value(self, x: Array, idx: Any) -> float:
        """The mean loss."""

    def value_and_gradient(self, x: Array, idx: Any, *, diagonal: bool = False) -> Any:
        """(value, gradient), or (value, gradient, diagonal of the curvature) where asked."""

    def curvature(self, x: Array, idx: Any) -> Product:
        """A product v -> Hv that keeps what it computed once for all of its calls."""


@dataclass(slots=True)
class Counts:
    """What a run has spent so far; a pass is one look at all samples, a product two.

    `differenced` of the `njev` gradients were made of values, which `nfev` counts already.
    """

    nfev: int = 0
    njev: int = 0
    nhev: int = 0
    differenced: int = 0
    passes: float = 0.0

    @property
    def work(self) -> int:
        """Evaluations in units of one value: gradients count one, products two."""
        return self.nfev + self.njev - self.differenced + 2 * self.nhev


class VerbCounter:
    """Counts the verbs of a problem that does not count by itself."""

    def __init__(self, problem: Problem, counts: Counts) -> None:
        self._problem, self._counts = problem, counts

    def value(self, x: Array, idx: Any) -> float:
        self._counts.nfev += 1
        return as_scalar(self._problem.value(x, idx), "value")

    def value_and_gradient(self, x: Array, idx: Any, *, diagonal: bool = False) -> Any:
        self._counts.nfev += 1
        self._counts.njev += 1
        # A problem without a diagonal need not know the keyword.
        known = {"diagonal": True} if diagonal else {}
        value, *tall = self._problem.value_and_gradient(x, idx, **known)
        return as_scalar(value, "value_and_gradient"), *tall

    def value_and_projected_gradient(self, x: Array, idx: Any, V: Array) -> tuple[float, Small]:
        self._counts.nfev += 1
        self._counts.njev += 1
        value, slopes = self._problem.value_and_projected_gradient(x, idx, V)  # type: ignore[attr-defined]
        return as_scalar(value, "value_and_projected_gradient"), np.asarray(slopes, float)

    def curvature(self, x: Array, idx: Any) -> Product:
        product = self._problem.curvature(x, idx)

        def counted(v: Array) -> Array:
            self._counts.nhev += 1
            return product(v)

        return counted


class FunctionProblem:
    """SciPy-style callables as a problem; made by :func:`as_problem`.

    ``fun(x, *args)``, or ``fun(x, idx, *args)`` where there are subsets, likewise the others.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        args: tuple[Any, ...],
        jac: Callable[..., Any] | bool | str,
        hess: Callable[..., Any] | str | None,
        hessp: Callable[..., Any] | None,
        subsets: Subsets | None,
        precond: Any,
    ) -> None:
        self._fun, self._args, self._jac = fun, args, jac
        self._hess, self._hessp, self._precond = hess, hessp, precond
        self.subsets = subsets
        self.has_diagonal = precond is not None
        self.separate_gradient = jac is not True
        self.gradient_accuracy = _differences.ERROR_POWER[jac] if isinstance(jac, str) else 1.0
        self._scheme = hess if isinstance(hess, str) and hess != "cs" else "2-point"
        self.product_accuracy = 1.0
        if hessp is None and not callable(hess):
            self.product_accuracy = self.gradient_accuracy * _differences.ERROR_POWER[self._scheme]
        self._counts = Counts()
        self._memo: _Memo | None = None  # only in a run's own copy: see `counting`
        self._space: Space | None = None
        self._box: Box | None = None

    def counting(self, counts: Counts) -> FunctionProblem:
        """A copy for one run: counts in `counts` and remembers the last point it was asked at.

        The memory compares points by identity, which is right for the solver (it never writes
        into a point) and would not be for a user who reuses an array.
        """
        twin = copy.copy(self)
        twin._counts, twin._memo = counts, _Memo()
        return twin

    def within(self, box: Box) -> FunctionProblem:
        """A copy that calls the user's functions in the box only."""
        twin = copy.copy(self)
        twin._box = box
        return twin

    # The verbs

    def value(self, x: Array, idx: Any = WHOLE) -> float:
        memo = self._recall(x, idx)
        if memo.value is None:
            if self._jac is True:
                memo.value, memo.gradient = self._fun_and_jac(x, idx)
            else:
                memo.value = self._raw_value(x, idx)
        return memo.value

    def value_and_gradient(self, x: Array, idx: Any = WHOLE, *, diagonal: bool = False) -> Any:
        memo = self._recall(x, idx)
        if memo.gradient is None:
            if self._jac is True:
                memo.value, memo.gradient = self._fun_and_jac(x, idx)
            else:
                memo.value = self._raw_value(x, idx) if memo.value is None else memo.value
                memo.gradient = self._raw_gradient(x, idx, memo.value)
        if diagonal:
            return memo.value, memo.gradient, self._diagonal(x, idx)
        return memo.value, memo.gradient

    def curvature(self, x: Array, idx: Any = WHOLE) -> Product:
        space = self._at(x)
        if callable(self._hess):
            self._counts.nhev += 1
            H = space.matrix(self._call(self._hess, x, idx), "hess")
            return lambda v: space.vector(H @ v, "hess")
        if self._hessp is not None:
            return lambda v: self._hessian_product(x, v, idx)
        _, g0 = self.value_and_gradient(x, idx)
        error = space.eps**self.gradient_accuracy

        def grad(at: Array) -> Array:
            at = at if self._box is None else self._box.project(at)
            if self._jac is True:
                return self._fun_and_jac(at, idx)[1]
            return self._raw_gradient(at, idx, None)

        return _differences.product(grad, x, g0, self._scheme, error, space)

    # How they call the user's functions

    def _call(self, function: Callable[..., Any], x: Array, idx: Any) -> Any:
        """The user gets a fresh copy of x at every call, and may overwrite it."""
        x = self._at(x).copy(x)
        return function(x, *self._args) if self.subsets is None else function(x, idx, *self._args)

    def _raw_value(self, x: Array, idx: Any) -> float:
        self._counts.nfev += 1
        return as_scalar(self._call(self._fun, x, idx), "fun")

    def _raw_gradient(self, x: Array, idx: Any, value: float | None) -> Array:
        self._counts.njev += 1
        if callable(self._jac):
            return self._at(x).vector(self._call(self._jac, x, idx), "jac")
        self._counts.differenced += 1
        scheme, fun = str(self._jac), self._probe(idx)
        if value is None and scheme == "2-point":
            value = fun(x)
        return _differences.gradient(fun, x, value or 0.0, scheme, self._at(x), self._box)

    def _fun_and_jac(self, x: Array, idx: Any) -> tuple[float, Array]:
        self._counts.nfev += 1
        self._counts.njev += 1
        out = self._call(self._fun, x, idx)
        if not isinstance(out, (tuple, list)) or len(out) != 2:
            raise ValueError("with jac=True, fun must return the pair (value, gradient)")
        return as_scalar(out[0], "fun"), self._at(x).vector(out[1], "fun (with jac=True)")

    def _hessian_product(self, x: Array, v: Array, idx: Any) -> Array:
        self._counts.nhev += 1
        space = self._at(x)
        at, p = space.copy(x), space.copy(v)
        assert self._hessp is not None
        if self.subsets is None:
            return space.vector(self._hessp(at, p, *self._args), "hessp")
        return space.vector(self._hessp(at, p, idx, *self._args), "hessp")

    def _probe(self, idx: Any) -> Callable[[Array], Any]:
        """`fun` as the difference formulas call it: counted, and complex where they step so."""

        def fun(at: Array) -> Any:
            self._counts.nfev += 1
            value = self._call(self._fun, at, idx)
            return value if self._jac == "cs" else as_scalar(value, "fun")

        return fun

    def _diagonal(self, x: Array, idx: Any) -> Array:
        diagonal = self._precond
        if callable(diagonal):
            diagonal = self._call(diagonal, x, idx)
        return self._at(x).vector(diagonal, "precond")

    # What they remember

    def _recall(self, x: Array, idx: Any) -> _Memo:
        if self._memo is None:
            return _Memo()
        if self._memo.x is not x or self._memo.idx is not idx:
            self._memo = _Memo(x, idx)
        return self._memo

    def _at(self, x: Array) -> Space:
        if self._space is None or not self._space.holds(x):
            self._space = Space(x)
        return self._space

    def __getstate__(self) -> dict[str, Any]:
        # A namespace is a module: it cannot be pickled.
        return {**self.__dict__, "_space": None, "_memo": None}


class DifferencedProblem(FunctionProblem):
    """Callables without a gradient: the search differences along the basis, not all n axes."""

    def value_and_projected_gradient(self, x: Array, idx: Any, V: Array) -> tuple[float, Small]:
        value, space = self.value(x, idx), self._at(x)
        fun, scheme = self._probe(idx), str(self._jac)
        return value, _differences.slopes_along(fun, x, V, value, scheme, space)


@dataclass(slots=True)
class _Memo:
    x: Array = None
    idx: Any = None
    value: float | None = None
    gradient: Array = None


def as_problem(
    fun: Callable[..., Any],
    args: Any = (),
    jac: Callable[..., Any] | bool | str | None = None,
    hess: Callable[..., Any] | str | None = None,
    hessp: Callable[..., Any] | None = None,
    subsets: Any = None,
    precond: Any = None,
) -> FunctionProblem:
    """Make SciPy-style callables into a problem object.

    Parameters
    ----------
    fun : callable
        ``fun(x, *args) -> float``; with subsets ``fun(x, idx, *args)``, the mean over `idx`.
    args : tuple, optional
        Extra arguments of all callables.
    jac : callable, bool, '2-point', '3-point', 'cs', optional
        The gradient; True: `fun` returns it beside the value; a scheme: by differences. None is
        '2-point'.
    hess : callable or scheme, optional
        ``hess(x, *args)`` gives the Hessian: dense, sparse or a LinearOperator. It has precedence
        over `hessp`.
    hessp : callable, optional
        ``hessp(x, p, *args)``, with subsets ``hessp(x, p, idx, *args)``. With neither `hess` nor
        `hessp` the gradient is differenced along p.
    subsets : int, Subsets, callable or iterable, optional
        See :class:`Subsets`.
    precond : array or callable, optional
        A positive diagonal D that roughly approximates the Hessian's: n numbers, or
        ``precond(x, *args)`` (with subsets ``precond(x, idx, *args)``) that returns them.

    Returns
    -------
    FunctionProblem
        With the verbs ``value``, ``value_and_gradient`` and ``curvature`` at (x, idx).

    Examples
    --------
    >>> import numpy as np, ksdmin
    >>> problem = ksdmin.as_problem(lambda x: x @ x, jac=lambda x: 2 * x)
    >>> problem.value(np.array([3.0, 4.0]))
    25.0
    """
    if not callable(fun):
        raise TypeError(f"fun must be callable or a problem object, not {type(fun).__name__}")
    if jac is None or jac is False:
        jac = "2-point"
    if not (jac is True or callable(jac) or jac in _differences.STEP_POWER):
        raise ValueError(
            f"jac={jac!r}: expected a callable, True, '2-point', '3-point', 'cs' or None"
        )
    if isinstance(hess, HessianUpdateStrategy):
        warnings.warn(
            f"ksd makes no quasi-Newton updates: in place of hess={type(hess).__name__}(), "
            "gradients are differenced along the Krylov directions; leave hess out to say so",
            OptimizeWarning,
            stacklevel=4,
        )
        hess = None
    if not (hess is None or callable(hess) or hess in _differences.STEP_POWER):
        raise ValueError(f"hess={hess!r}: expected a callable, '2-point', '3-point', 'cs' or None")
    if hessp is not None and not callable(hessp):
        raise TypeError("hessp must be callable: hessp(x, p, *args)")
    args = args if isinstance(args, tuple) else (args,)
    sets = None if subsets is None else as_subsets(subsets)
    kind = DifferencedProblem if isinstance(jac, str) else FunctionProblem
    return kind(fun, args, jac, hess, hessp, sets, precond)
