"""SciPy-style callables as a problem."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Self

from array_api_compat import is_array_api_obj
from scipy.optimize import HessianUpdateStrategy, OptimizeWarning
from scipy.sparse import issparse

from ksdmin._problem import differences
from ksdmin._problem.arrays import Array, Small, Space
from ksdmin._problem.box import Box
from ksdmin._problem.counting import CountingProblem, Counts, Memo, Remembered
from ksdmin._problem.protocol import DEFAULT_TRAITS, Product, Traits
from ksdmin._problem.subsets import WHOLE, as_subsets
from ksdmin._problem.user_values import (
    add_note,
    as_scalar,
    frames_to_the_user,
    given,
    refuse_coarse,
    samples,
)
from ksdmin._problem.values import changed

IDX_IS = (
    "idx is slice(None) or a sorted array of int64 rows below the number of samples that subsets= "
    "says (are there so many?), or what your own subsets hold"
)
CALLED_AS = (
    "with subsets=, fun is called as fun(x, idx, *args), jac likewise, and hessp as "
    f"hessp(x, p, idx, *args); {IDX_IS}"
)
CALLED_AT_X = (
    "fun is called as fun(x, *args), jac and hess likewise, and hessp as hessp(x, p, *args). A "
    "mean over samples, fun(x, idx), needs subsets=N, their number"
)
NO_TENSOR = "x is of the same library as x0: for a torch function pass a tensor, torch.tensor(x0)"
MATRICES = ("hessian", "residuals", "jacobian")  # what a memo may hold
SMALL_SPARSE = 100  # a sparse Hessian with so few unknowns may be made dense
BY_POSITION = "the rows idx of a pandas object are df.iloc[idx], or df.to_numpy()[idx], not df[idx]"


class FunctionProblem(CountingProblem):
    """SciPy-style callables as a problem; made by :func:`as_problem`.

    They are called as ``fun(x, *args)``, or with subsets as ``fun(x, idx, *args)``.
    """

    name, called_as, called_at_x = "fun", CALLED_AS, CALLED_AT_X

    def __init__(
        self,
        fun: Callable[..., Any],
        args: Any,
        jac: Callable[..., Any] | bool | str,
        hess: Any,
        hessp: Callable[..., Any] | None,
        subsets: Any,
        precond: Any,
        nonlinear: bool,
    ) -> None:
        if jac is not True:
            _check_derivative("jac", jac, "True, " if self.name == "fun" else "")
        if isinstance(hess, HessianUpdateStrategy):
            warnings.warn(
                f"hess={type(hess).__name__}() is not used: ksd has a quasi-Newton model of its "
                "own, and differences of gradients if that does not suffice. Leave hess out",
                OptimizeWarning,
                stacklevel=frames_to_the_user(),
            )
            hess = None
        if hess is not None:
            _check_derivative("hess", hess)
        if hessp is not None and not callable(hessp):
            raise TypeError("hessp must be callable: hessp(x, p, *args)")
        self._fun, self._jac = fun, jac
        self._args = args if isinstance(args, tuple) else (args,)
        self._hess, self._hessp, self._precond = hess, hessp, precond
        self._hess_works = False  # whether `hess` has returned something
        self._hess_is_dense = callable(hess)  # until its first call shows otherwise
        self._scheme = hess if isinstance(hess, str) and hess != "cs" else "2-point"
        self.subsets = None if subsets is None else as_subsets(subsets)
        self.traits = self._traits(nonlinear)
        self._counts = Counts()
        self._memo: Memo | None = None  # only in the copy of a run: see `counting`
        # What a vector of residuals is known to be at two points more: see `ResidualProblem`.
        self._kept: Memo | None = None
        self._before: Memo | None = None
        self._space: Any = None  # of the last point; each verb finds it by `_recall` or `_at`
        self._box: Box | None = None
        self._watch: Callable[[], None] | None = None  # called between the values of a difference

    def _traits(self, nonlinear: bool) -> Traits:
        accuracy = differences.ERROR_POWER[self._jac] if isinstance(self._jac, str) else 1.0
        exact = self._hessp is not None or callable(self._hess)
        return changed(  # ours: they need no check
            DEFAULT_TRAITS,
            nonlinear=nonlinear,
            gradient_accuracy=accuracy,
            product_accuracy=1.0 if exact else accuracy * differences.ERROR_POWER[self._scheme],
            has_diagonal=self._precond is not None,
            separate_gradient=self._jac is not True,
            has_matrix=self._hess_is_dense and callable(self._hess),
            # without hessp, products need the whole matrix, too
            matrix_cost=0.0 if self._hessp is None else None,
        )

    def _described(self) -> list[str]:
        callables = {
            self.name: self._fun, "jac": self._jac, "hess": self._hess, "hessp": self._hessp
        }  # fmt: skip
        functions = [part for name, value in callables.items() for part in given(name, value)]
        return functions + samples(self.subsets)

    def counting(self, counts: Counts) -> Self:
        """A copy for a run, which counts in `counts` and remembers the last point.

        The memory compares points by identity. That is right for the solver, which never writes
        into a point, but not for a user who reuses an array.
        """
        memo = Memo() if self._memo is None else self._memo.copy()
        kept = self._kept and self._kept.copy()
        return changed(self, _counts=counts, _memo=memo, _kept=kept, _before=None)

    def in_space(self, space: Space) -> Self:
        """A copy for a run in `space`; a diagonal given as an array is checked."""
        if self._precond is not None and not callable(self._precond):
            self._check_diagonal(space, space.vector(self._precond, "precond"))
        return changed(self, _space=space)

    def remembered(self) -> Remembered:
        """What a run knows of its last point, and of `hess`."""
        memo = Memo() if self._memo is None else self._memo
        return Remembered(
            *(memo.x, memo.idx, memo.value, memo.gradient),
            recomputed=tuple(name for name in MATRICES if getattr(memo, name) is not None),
            hess_works=self._hess_works,
            hess_is_dense=self._hess_is_dense,
            hess_is_used=self._hess is not None,
        )

    def recalling(self, remembered: Remembered) -> Self:
        """A copy that remembers what another one did; calls for this are not counted."""
        known = remembered
        recalling = self._with(
            _counts=Counts(),
            _memo=Memo(known.x, known.idx, known.value, known.gradient),
            _hess_works=known.hess_works,
            _hess_is_dense=known.hess_is_dense,
            _hess=self._hess if known.hess_is_used else None,
        )
        memo = recalling._recall(known.x, known.idx)
        for matrix in known.recomputed:
            setattr(memo, matrix, getattr(recalling, f"_{matrix}")(memo))
        return recalling

    def within(self, box: Box) -> Self:
        """A copy that calls the user's functions within the box only."""
        return changed(self, _box=box)

    def watched(self, watch: Callable[[], None]) -> Self:
        """A copy whose gradients, if they are many values, may be given up halfway."""
        return changed(self, _watch=watch)

    def by_best_differences(self) -> Self:
        """A copy for a few accurate products: 3-point, if they are differences."""
        return (self.in_finer_arithmetic() or self)._with(_scheme="3-point")

    def in_finer_arithmetic(self) -> Self | None:
        """The problem with 3-point instead of 2-point differences, 500 times as accurate.

        What is known of the last point is kept, except for its derivatives.
        """
        if self._jac != "2-point":
            return None
        memo = self._memo and replace(self._memo, gradient=None, jacobian=None)
        return self._with(_jac="3-point", _memo=memo, _kept=None, _before=None)

    def _with(self, **changes: Any) -> Self:
        """A copy with these changes, and with the traits that follow from them."""
        copy = changed(self, **changes)
        copy._renew_traits()
        return copy

    def _renew_traits(self) -> None:
        self.traits = self._traits(self.traits.nonlinear)

    @property
    def has_only_values(self) -> bool:
        """Whether gradients and products are differences of real values."""
        exact = callable(self._hess) or self._hessp is not None
        return self._jac in ("2-point", "3-point") and not exact

    # The verbs

    def value(self, x: Array, idx: Any = WHOLE) -> float:
        memo = self._recall(x, idx)
        if memo.value is None:
            if self._jac is True:
                memo.value, memo.gradient = self._fun_and_jac(x, idx)
            else:
                self._counts.nfev += 1
                memo.value = as_scalar(self._returned(self._fun, x, idx=idx), "fun")
        return memo.value

    def value_beside(self, x: Array, idx: Any) -> float:
        return changed(self, _memo=None).value(x, idx)

    @property
    def gradient_is_written(self) -> bool:  # type: ignore[override]
        """Whether there is a `jac`, rather than differences."""
        return not isinstance(self._jac, str)

    def value_and_gradient(self, x: Array, idx: Any = WHOLE, *, diagonal: bool = False) -> Any:
        memo = self._recall(x, idx)
        if memo.gradient is None:
            if self._jac is True:
                memo.value, memo.gradient = self._fun_and_jac(x, idx)
            else:
                memo.value = self.value(x, idx) if memo.value is None else memo.value
                memo.gradient = self._gradient(x, idx, memo.value)
        if diagonal:
            return memo.value, memo.gradient, self._diagonal(x, idx, memo.value)
        return memo.value, memo.gradient

    def curvature(self, x: Array, idx: Any = WHOLE) -> Product:
        space = self._at(x)
        products = self._hessp is not None and self.traits.has_matrix
        H = None
        if callable(self._hess) and not products:
            H = self._hessian(self._recall(x, idx))
        if H is not None:
            return lambda v: space.product(H, v, "hess")
        if self._hessp is not None:
            return partial(self._hessian_product, x, idx)
        _, g0 = self.value_and_gradient(x, idx)
        error = space.eps**self.traits.gradient_accuracy

        def grad(at: Array) -> Array:
            at = at if self._box is None else self._box.project(at)  # it may be outside by rounding
            if self._jac is True:
                return self._fun_and_jac(at, idx)[1]
            return self._gradient(at, idx, None)

        return differences.product(grad, x, g0, self._scheme, error, space, self._box)

    def matrix(self, x: Array, idx: Any = WHOLE) -> Array | None:
        """What `hess` returned; None, from then on, if that is not dense.

        A small sparse matrix counts as dense.
        """
        memo = self._recall(x, idx)
        H = self._hessian(memo)
        if issparse(H) and H.shape[0] <= SMALL_SPARSE:
            H = H.toarray()
        if H is not None and not is_array_api_obj(H):
            memo.hessian = H  # for the products that are used instead
            self._hess_is_dense, H = False, None
            self._renew_traits()
        return H

    def _hessian(self, memo: Memo) -> Any:
        """What `hess` returned: a matrix, sparse or not, or an operator.

        None if it raises in its first call: then it is not used. Other libraries pass such
        functions as placeholders. A wrong signature is still an error.
        """
        if memo.hessian is not None:
            return memo.hessian
        try:
            H = self._returned(self._hess, memo.x, idx=memo.idx)
        except Exception as error:
            if self._hess_works or isinstance(error, TypeError):
                raise
            instead = "hessp is used" if self._hessp is not None else "gradients are differenced"
            reason = f" ({error})" if str(error) else ""
            warnings.warn(
                f"hess raised {type(error).__name__}{reason}: {instead} in its place",
                OptimizeWarning,
                stacklevel=2,
            )
            self._hess = None
            self._renew_traits()
            return None
        self._hess_works = True
        self._counts.nhev += 1
        return self._at(memo.x).matrix(H, "hess")

    # How they call the user's functions

    def _returned(self, function: Callable[..., Any], *vectors: Array, idx: Any) -> Any:
        """What a user function returns for copies, which it may overwrite; `idx` with subsets."""
        own = map(self._space.given, vectors)
        try:  # a context manager would cost cheap functions more
            if self.subsets is None:
                return function(*own, *self._args)
            return function(*own, idx, *self._args)
        except (TypeError, IndexError, KeyError) as error:
            self._explain(error)
            raise

    def _explain(self, error: Exception) -> None:
        """Add to an error of a user function how it was called: it may not take `idx`."""
        if self.subsets is None:
            add_note(error, self.called_at_x, "positional argument")
            add_note(error, NO_TENSOR, "must be Tensor, not numpy")
            return
        add_note(error, self.called_as)
        if isinstance(error, KeyError):
            add_note(error, BY_POSITION)

    def _gradient(self, x: Array, idx: Any, value: float | None) -> Array:
        self._counts.njev += 1
        if callable(self._jac):
            out = self._returned(self._jac, x, idx=idx)
            return self._space.vector(_flat(out) if getattr(out, "ndim", 1) == 2 else out, "jac")
        self._counts.differenced += 1
        axes = differences.Axes(self._space, str(self._jac), self._box)
        return axes.gradient(self._probe(idx), x, value)

    def _fun_and_jac(self, x: Array, idx: Any) -> tuple[float, Array]:
        self._counts.nfev += 1
        self._counts.njev += 1
        out = self._returned(self._fun, x, idx=idx)
        if not isinstance(out, (tuple, list)) or len(out) != 2:
            raise ValueError("with jac=True, fun must return the pair (value, gradient)")
        value, g = out
        g = _flat(g) if getattr(g, "ndim", 1) == 2 else g
        return as_scalar(value, "fun"), self._space.vector(g, "fun (with jac=True)")

    def _hessian_product(self, x: Array, idx: Any, v: Array) -> Array:
        self._counts.nhev += 1
        space, hessp = self._at(x), self._hessp
        return space.vector(self._returned(hessp, x, v, idx=idx), "hessp")  # type: ignore[arg-type]

    def _probe(self, idx: Any) -> Callable[[Array], Any]:
        """`fun` for the difference formulas: counted, and complex for complex steps."""

        def fun(at: Array) -> Any:
            if self._watch is not None:
                self._watch()
            self._counts.nfev += 1
            value = self._returned(self._fun, at, idx=idx)
            if self._jac == "cs":  # on the host, where the differences are taken
                return value.item() if hasattr(value, "item") else value
            refuse_coarse(value, self._space.eps)
            return as_scalar(value, "fun")

        return fun

    def _diagonal(self, x: Array, idx: Any, value: float | None) -> Array:
        space, diagonal = self._at(x), self._precond
        if not callable(diagonal):
            return space.vector(diagonal, "precond")
        D = space.vector(self._returned(diagonal, x, idx=idx), "precond")
        if value is not None and math.isfinite(value):  # otherwise the run ends
            self._check_diagonal(space, D)
        return D

    def _check_diagonal(self, space: Space, D: Array) -> None:
        """Zeros are floored later; a function may return only zeros, at a solution."""
        xp = space.xp
        wrong = ~((D >= 0) & (D < math.inf))
        if xp.any(wrong):
            i = int(xp.argmax(xp.astype(wrong, D.dtype)))
            word = "finite" if float(D[i]) == math.inf else "positive"
            raise ValueError(f"precond must be {word}: entry {i} is {float(D[i])}")
        if not callable(self._precond) and not xp.any(D > 0):
            raise ValueError("precond must be positive: all entries are zero")

    # What they remember

    def _recall(self, x: Array, idx: Any) -> Memo:
        known = self._memo
        if known is not None and known.x is x and known.idx is idx:
            return known
        new = Memo(x, idx)
        if known is not None:
            self._memo = new
        if known is None or self._space is None:  # all points of a run have one space
            self._at(x)
        return new

    def _at(self, x: Array) -> Space:
        if self._space is None or not self._space.holds(x):
            self._space = Space(x)
        space: Space = self._space
        return space

    def __getstate__(self) -> dict[str, Any]:
        # A namespace is a module: it cannot be pickled.
        forgotten = ("_space", "_memo", "_kept", "_before", "_watch")
        return {**self.__dict__, **dict.fromkeys(forgotten)}


class DifferencedProblem(FunctionProblem):
    """Callables without a gradient: the search takes differences along the basis, not n axes."""

    def _traits(self, nonlinear: bool) -> Traits:
        return replace(
            super()._traits(nonlinear),
            has_projected_gradient=True,
            has_finer_arithmetic=self._jac == "2-point",
        )

    def value_and_projected_gradient(self, x: Array, idx: Any, V: Array) -> tuple[float, Small]:
        value, space = self.value(x, idx), self._at(x)
        fun, scheme = self._probe(idx), str(self._jac)
        return value, differences.slopes_along(fun, x, V, value, scheme, space)


def _flat(g: Any) -> Any:
    """A gradient given as a row or column, as a vector; any other matrix unchanged."""
    return g.reshape(-1) if 1 in g.shape else g


def _check_derivative(name: str, given: Any, also: str = "") -> None:
    """Raise if it is neither a function nor a scheme."""
    if not callable(given) and not isinstance(given, str):
        raise TypeError(
            f"{name} must be a function, {name}(x, *args), or the name of a scheme, not a "
            f"{type(given).__name__}; for a constant one, lambda x: {name[0].upper()}"
        )
    if isinstance(given, str) and given not in differences.STEP_POWER:
        raise ValueError(
            f"{name}={given!r}: expected a callable, {also}'2-point', '3-point', 'cs' or None"
        )
