"""A vector of residuals as a problem: nonlinear least squares, as SciPy's ``least_squares``."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np
from array_api_compat import is_array_api_obj, is_jax_array, is_numpy_array, is_torch_array
from scipy.linalg import lstsq
from scipy.sparse import csr_array, diags_array, issparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from ksdmin._problem import differences
from ksdmin._problem.arrays import EPS, Array, Small, as_numpy, refuse_none
from ksdmin._problem.counting import Memo
from ksdmin._problem.differences import Sparsity, require_shape
from ksdmin._problem.functions import IDX_IS, FunctionProblem
from ksdmin._problem.protocol import VALUE_ROUNDINGS, Jacobian, Product, Traits
from ksdmin._problem.robust_losses import as_loss, linear
from ksdmin._problem.structure import SparseRows, Structure, as_structure
from ksdmin._problem.subsets import WHOLE
from ksdmin._problem.values import changed

# The least weight of a residual in the Gauss-Newton matrix: that of an outlier is negative (SciPy's
# least_squares has the same floor).
LEAST_WEIGHT = EPS
# A weight is divided by, also where the slope of a loss underflows.
LEAST_POSITIVE = sys.float_info.min

# The least weight of a residual in a step, as a share of the slope of its loss.
LEAST_SHARE = 0.1
# For differences a variable counts as at least this share of its size at the start.
LEAST_SIZE = 1e-2
# A sparse Jacobian or an operator with so few unknowns and entries is made dense; with more
# unknowns, a decomposition takes longer than Krylov spaces.
FEW_UNKNOWNS, FEW_ENTRIES = 300, 1e7

# The most operations of a decomposition that confirms a test of convergence.
MOST_WORK = 1e11

NUMPY_ONLY = (
    "residuals= takes numpy arrays; for others see ksdmin.from_torch, from_jax and from_autograd, "
    "which take residuals=[(r, data), ...]"
)


class ResidualProblem(FunctionProblem):
    """Squared residuals as a problem; made by :func:`ksdmin.as_problem` with ``residuals=``.

    The value is 0.5 * sum(rho(r^2)), in units of `f_scale`; with subsets it is the mean instead of
    the sum. The curvature is the Gauss-Newton matrix J^T d J, with d = rho' + 2 rho'' r^2.
    """

    name = "residuals"
    called_as = (
        f"with subsets=, residuals(x, idx, *args) gives the rows idx, jac likewise; {IDX_IS}"
    )
    called_at_x = "residuals is called as residuals(x, *args), jac likewise"

    has_only_values = False  # the Gauss-Newton matrix needs the Jacobian only

    def __init__(
        self,
        residuals: Any,
        args: Any,
        jac: Callable[..., Any] | bool | str | None,
        loss: Any,
        f_scale: Any,
        subsets: Any,
        precond: Any,
        nonlinear: bool,
    ) -> None:
        if not callable(residuals):
            raise TypeError(f"residuals must be callable, not {type(residuals).__name__}")
        if jac is True or jac is False:
            raise TypeError("jac: with residuals= a function or the name of a scheme, not a bool")
        number = np.ndim(f_scale) == 0 and np.asarray(f_scale).dtype.kind in "fiub"
        if not number or not 0 < f_scale < math.inf:
            raise ValueError(f"f_scale={f_scale!r}: expected a positive number")
        self._loss, self._f_scale = as_loss(loss), float(f_scale)
        self._plain = self._loss is linear and subsets is None  # half the sum of squares
        self._refines = jac is None  # whether 2-point differences may become 3-point ones
        self.unit_free = subsets is None
        jac = "2-point" if jac is None else jac
        self._rows_are_dense = True  # until the first call of `jac` shows otherwise
        self._last_rho: tuple[Small, Small] | None = None  # residuals, and their losses
        self._rows = 0  # of a plain function, after its first call
        self._eps = 0.0  # eps of the coarsest dtype that `residuals` has returned
        self._structure: Structure | None = None  # what the pattern of a sparse Jacobian says
        # Of `least_squares`: without values of differences in `nfev`, with functions of JAX and
        # PyTorch, and without a comparison of `jac` with the residuals.
        self._mirrors_scipy = False
        self._diff_step: Small | None = None  # relative, for each variable
        self._sparsity: Sparsity | None = None
        self._least_sizes: Small | None = None  # that differences take a variable for
        self.variable_scale, self.sees_nothing = None, False
        super().__init__(residuals, args, jac, None, None, subsets, precond, nonlinear)

    def _traits(self, nonlinear: bool) -> Traits:
        traits = super()._traits(nonlinear)
        return changed(  # ours: they need no check
            traits,
            product_accuracy=traits.gradient_accuracy,
            has_diagonal=True,
            has_jacobian=self._rows_are_dense,
            has_matrix=self._rows_are_dense,
            matrix_cost=0.0,  # the gradient needs the Jacobian, too
            rows_per_sample=float(self._rows or 1),
            sum_of_squares=self._loss is linear,
            has_projected_gradient=isinstance(self._jac, str),
            has_finer_arithmetic=self._refines and self._jac == "2-point",
            noise=VALUE_ROUNDINGS * self._eps if self._eps else None,
        )

    def as_least_squares(
        self, x0: Small, diff_step: Small | None, sparsity: Any, variable_scale: Small | None
    ) -> Self:
        """A copy that counts as SciPy's ``least_squares`` does: without values for differences."""
        return changed(
            self,
            _diff_step=diff_step,
            _least_sizes=LEAST_SIZE * np.where(x0 == 0, 1.0, np.abs(x0)),
            _sparsity=None if sparsity is None else Sparsity(sparsity),
            _mirrors_scipy=True,
            variable_scale=variable_scale,
        )

    def predicted_reduction(self, x: Array, idx: Any, g: Array) -> float | None:
        """The gain that the linear model predicts for its minimum; None if that is too much work.

        Variables without a slope in g do not move: a bound holds them, or they have converged.
        """
        r, J = self.residuals_and_jacobian(x, idx)
        if not isinstance(J, np.ndarray) or J.shape[0] * J.shape[1] * min(J.shape) > MOST_WORK:
            return None
        root = np.sqrt(self._weights(r))
        R, e = J[:, g != 0] * root[:, None], self._force(r) / root
        lengths = np.sqrt(np.einsum("ij,ij->j", R, R))
        if not lengths.all() or not np.isfinite(lengths).all():
            return None
        cutoff = EPS * max(R.shape)
        p = lstsq(R / lengths, -e, cond=cutoff, lapack_driver="gelsy", check_finite=False)[0]
        change = R @ (p / lengths)
        hidden = EPS * float(np.abs(e) @ (np.abs(R) @ np.abs(x[g != 0])))  # by rounding of x
        return max(float(-(change @ e) - change @ change / 2) - hidden, 0.0)

    def largest_cosine(self, x: Array, idx: Any, g: Array, value: float) -> float | None:
        """The largest cosine between the residuals and a column of a variable that may move."""
        r, J = self.residuals_and_jacobian(x, idx)
        if isinstance(J, LinearOperator):
            return None
        lengths = np.sqrt(_squared_columns(J, self._weights(r)))
        cosines = np.abs(g) / np.where(lengths > 0, lengths, 1.0)
        return float(cosines.max(initial=0.0)) / math.sqrt(2 * value) if value > 0 else 0.0

    @property
    def gradient_is_written(self) -> bool:  # type: ignore[override]
        """Whether there is a `jac` that a run should compare with the residuals."""
        return not self._mirrors_scipy and super().gradient_is_written

    def residuals(self, x: Array, idx: Any) -> Small:
        """The residuals r."""
        return self._residuals(self._recall(x, idx))

    def residuals_and_jacobian(self, x: Array, idx: Any = WHOLE) -> tuple[Small, Any]:
        """r, and J as the user's function returns it."""
        memo = self._recall(x, idx)
        return self._residuals(memo), self._jacobian(memo)

    def curved_jacobian(self, x: Array, idx: Any = WHOLE) -> Any:
        """J weighted so that J^T J is the curvature, as ``least_squares`` returns it."""
        r, J = self.residuals_and_jacobian(x, idx)
        return J if self._plain else _scaled(J, np.sqrt(self._weights(r)))

    # The verbs

    def value(self, x: Array, idx: Any = WHOLE) -> float:
        """0.5 * the sum (with subsets: the mean) of the losses."""
        memo = self._recall(x, idx)
        if memo.value is None:
            r = self._residuals(memo)
            if self._plain:
                memo.value = float(r @ r) / 2
            else:
                squares = self._f_scale**2 * self._rho(r)[0]
                memo.value = float(self._scale(r) / 2 * squares.sum())
        return memo.value

    def _gradient(self, x: Array, idx: Any, value: float | None) -> Array:
        r, J = self.residuals_and_jacobian(x, idx)
        return self._at(x).vector(_transposed(J, self._force(r)), "jac")

    def value_and_projected_gradient(self, x: Array, idx: Any, V: Array) -> tuple[float, Small]:
        """The value and V^T g, from differences of the residuals along the rows of V."""
        value, r = self._value_and_residuals(x, idx)
        probe, scheme = partial(self._probed, idx=idx), str(self._jac)
        return value, differences.slopes_along(probe, x, V, r, scheme, self._at(x)) @ self._force(r)

    def curvature(self, x: Array, idx: Any = WHOLE) -> Product:
        """The product v -> J^T d J v."""
        (r, J), space = self.residuals_and_jacobian(x, idx), self._at(x)
        weights = self._weights(r)

        def times(v: Array) -> Array:
            self._counts.nhev += 1
            return space.vector(_transposed(J, weights * _times(J, v)), "the product with jac")

        return times

    def jacobian(self, x: Array, idx: Any = WHOLE) -> Jacobian | None:
        """The rows; None, from then on, if `jac` is not dense.

        The weight of an outlier, whose curvature is negative, is a share of rho', the weight of
        iteratively reweighted least squares. (Zero, as in SciPy, takes 1.2 times as many Jacobians,
        and rho' itself 1.4 times.)
        """
        r, J = self._dense_jacobian(x, idx)
        if J is None:
            return None
        if self._plain:
            return Jacobian(J.copy("K"), r, at=partial(self._value_and_residuals, idx=idx))
        return self._weighted(J, r, idx, self._weights(r, LEAST_SHARE))

    def matrix(self, x: Array, idx: Any = WHOLE) -> Array | None:
        """The curvature matrix; None likewise."""
        r, J = self._dense_jacobian(x, idx)
        return None if J is None else np.asarray((J.T * self._weights(r)) @ J)

    def _dense_jacobian(self, x: Array, idx: Any) -> tuple[Small, Small | None]:
        r, J = self.residuals_and_jacobian(x, idx)
        dense = _dense(J)
        if dense is None:
            self._rows_are_dense = False
            self._renew_traits()
        return r, dense

    @property
    def has_sparse_jacobian(self) -> bool:  # type: ignore[override]
        """Whether the last Jacobian was sparse, and too large to be made dense."""
        memo = self._memo
        J = None if memo is None else memo.jacobian
        return issparse(J) and not _is_small(J)

    def sparse_jacobian(self, x: Array, idx: Any, reweighting: float) -> Jacobian | None:
        """The same with sparse rows; None if `jac` is not sparse.

        The weight of a residual lies between the second derivative of its loss, kept positive, and
        rho', that of iteratively reweighted least squares: `reweighting` is 0 or 1 for these two.
        """
        r, J = self.residuals_and_jacobian(x, idx)
        if not issparse(J):
            return None
        self._structure = as_structure(J, self._structure)
        if self._plain:
            at = partial(self._value_and_residuals, idx=idx)
            return Jacobian(SparseRows(J, self._structure), r, at=at)
        least, most = self._weights(r), self._scale(r) * self._rho(r)[1]
        weights = least + reweighting * np.maximum(most - least, 0.0)
        weighted = self._weighted(J, r, idx, weights)
        bounds = least / weights, np.maximum(most, least) / weights
        return weighted._replace(rows=SparseRows(weighted.rows, self._structure, bounds))

    def _weighted(self, J: Any, r: Small, idx: Any, weights: Small) -> Jacobian:
        """Rows and residuals as a step takes them."""
        root = np.sqrt(weights)

        def at(y: Array) -> tuple[float, Small]:
            value, there = self._value_and_residuals(y, idx)
            return value, self._force(there) / root

        return Jacobian(_scaled(J, root), self._force(r) / root, at=at)

    def _value_and_residuals(self, x: Array, idx: Any) -> tuple[float, Small]:
        return self.value(x, idx), self.residuals(x, idx)

    def _diagonal(self, x: Array, idx: Any, value: float | None) -> Array:
        """The user's diagonal, or that of the Gauss-Newton matrix; ones for a LinearOperator."""
        if self._precond is not None:
            return super()._diagonal(x, idx, value)
        r, J = self.residuals_and_jacobian(x, idx)
        if isinstance(J, LinearOperator):
            return np.ones_like(x)
        return self._at(x).vector(_squared_columns(J, self._weights(r)), "jac")

    def _rho(self, r: Small) -> Small:
        """The losses and their two derivatives; those of the last residuals are kept."""
        if self._last_rho is None or self._last_rho[0] is not r:
            with np.errstate(over="ignore", invalid="ignore"):  # far away; such a step is refused
                self._last_rho = r, self._loss((r / self._f_scale) ** 2)
        return self._last_rho[1]

    def _weights(self, r: Small, share: float = 0.0) -> Small:
        """The second derivative of each loss along its residual, kept positive.

        It is at least this share of the slope of the loss; without a share, at least a constant.
        """
        if self._plain:
            return np.ones_like(r)
        rho = self._rho(r)
        with np.errstate(over="ignore", invalid="ignore"):
            curved = rho[1] + 2 * rho[2] * (r / self._f_scale) ** 2
        least = np.maximum(share * rho[1], LEAST_POSITIVE) if share else LEAST_WEIGHT
        # Not `maximum`: where squares overflow, 0 times infinity is NaN.
        weights: Small = self._scale(r) * np.fmax(curved, least)
        return weights

    def _force(self, r: Small) -> Small:
        """The derivative of the value in each residual."""
        if self._plain:
            return r
        force: Small = self._scale(r) * self._rho(r)[1] * r
        return force

    def _scale(self, r: Small) -> float:
        return 1.0 if self.subsets is None else 1 / len(r)

    # What they remember, and how they call the user's functions

    def _recall(self, x: Array, idx: Any) -> Memo:
        """Remember two points more than the last: `_kept` and `_before`.

        The last one with a Jacobian is where the steps of a fit begin. The one before the last may
        be a step that its correction has not improved.
        """
        last, kept, before = self._memo, self._kept, self._before
        if last is None or (last.x is x and last.idx is idx):
            return super()._recall(x, idx)
        if last.jacobian is not None:
            self._kept = last
        self._before = last
        for known in (kept, before):
            if known is not None and known.x is x and known.idx is idx:
                self._memo = known
                return known
        return super()._recall(x, idx)

    def _residuals(self, memo: Memo) -> Small:
        if memo.residuals is None:
            self._counts.nfev += 1
            r = self._returned(self._fun, memo.x, idx=memo.idx)
            memo.residuals = self._vector(r, memo.x, memo.idx)
        residuals: Small = memo.residuals
        return residuals

    def _note_rows(self, rows: int) -> None:
        """Note the number of residuals of a plain function, in its first call."""
        if rows != self._rows:
            if self._rows:
                raise ValueError(
                    f"residuals returned {rows} values, before {self._rows}: expected as many at "
                    "each x"
                )
            self._rows = rows
            self._renew_traits()

    def _vector(self, given: Any, x: Array, idx: Any, kinds: str = "fiub") -> Small:
        """What the user's function returned, as a vector of float64 (or complex numbers)."""
        space = self._at(x)
        if not space.numpy or space.hosted:
            raise TypeError(NUMPY_ONLY)
        if is_double(given, 1):
            r: Small = np.array(given)  # the usual case
        else:
            r = self._array(given, "residuals", 1, kinds)
            if r.dtype.kind == "f" and r.dtype.itemsize < 8 and not self._eps:
                self._eps = float(np.finfo(r.dtype).eps)
                self._renew_traits()
            r = r.astype(np.complex128 if r.dtype.kind == "c" else np.float64, copy=False)
        if r.ndim != 1 or not r.size:
            raise ValueError(
                f"residuals returned shape {r.shape}: expected a vector of at least one residual"
            )
        if self.subsets is None:
            self._note_rows(len(r))
            return r
        expected = self.subsets.size_of(idx)
        if expected is not None and len(r) != expected:
            raise ValueError(
                f"residuals returned {len(r)} rows for a set of {expected}: expected the rows idx"
            )
        return r

    def _matrix(self, J: Any, shape: tuple[int, int]) -> Any:
        """The Jacobian that the user's function returned: dense ones are copied."""
        if is_double(J, 2):
            J = np.array(J)  # the usual case
        elif issparse(J):
            J = csr_array(J, copy=True, dtype=np.float64)
            J.sum_duplicates()
        elif not isinstance(J, LinearOperator):
            J = self._array(J, "jac", 2)
            J = J.astype(np.float32 if J.dtype == np.float32 else np.float64, copy=False)
        require_shape(tuple(J.shape), shape, "jac returned")
        return J

    def _array(self, u: Any, origin: str, axes: int, kinds: str = "fiub") -> Small:
        """A numpy array of what the user's function `origin` returned."""
        if self._mirrors_scipy and (is_torch_array(u) or is_jax_array(u)):
            u = as_numpy(u)
        if is_array_api_obj(u) and not is_numpy_array(u):
            raise TypeError(NUMPY_ONLY)
        refuse_none(u, origin)
        array: Small = np.array(u, ndmin=axes)
        if array.dtype.kind not in kinds:
            raise TypeError(f"{origin} returned values that are not real numbers")
        return array

    def _jacobian(self, memo: Memo) -> Any:
        if memo.jacobian is None:
            self._counts.njev += 1
            x, idx, r = memo.x, memo.idx, self._residuals(memo)
            if callable(self._jac):
                J = self._returned(self._jac, x, idx=idx)
                memo.jacobian = self._matrix(J, (len(r), len(x)))
            else:
                self._counts.differenced += 1
                memo.jacobian = self._differences(x, idx, r, str(self._jac))
        return memo.jacobian

    def _differences(self, x: Array, idx: Any, r: Small, scheme: str) -> Any:
        """The Jacobian by finite differences; columns of zeros by longer steps, too."""
        probe, steps = partial(self._probed, idx=idx), self._steps(x, scheme)
        axes = differences.Axes(self._at(x), scheme, self._box)
        if self._sparsity is not None:
            require_shape(self._sparsity.shape, (len(r), len(x)), "jac_sparsity has")
            return self._sparsity.jacobian(axes, probe, x, r, steps)
        J = axes.slopes(probe, x, lambda: r, steps, r.shape)
        if not r.any() or scheme == "cs":
            return J
        seen = np.asarray(J.any(0))
        if self._diff_step is None and self._least_sizes is not None and not seen.all():
            longest = differences.LONGEST * np.maximum(np.abs(x), self._least_sizes)
            for i in map(int, np.flatnonzero(~seen)):
                J[:, i], seen[i] = axes.slope_by_longer_steps(
                    probe, x, r, i, float(steps[i]), float(longest[i])
                )
        self.sees_nothing = not seen.any()
        return J

    def _steps(self, x: Array, scheme: str) -> Small:
        """The best step along each axis, relative to the variable, so that units do not matter.

        Steps go away from zero, as in MINPACK and SciPy. A variable counts as at least its least
        size: with steps relative to a smaller one, differences would be rounding.
        """
        sizes, least = np.where(x == 0, 1.0, np.asarray(x, dtype=np.float64)), self._least_sizes
        if self._diff_step is not None:
            steps = self._diff_step * sizes
        else:
            if least is not None:
                sizes = np.where(np.abs(x) < least, np.copysign(least, x), sizes)
            steps = max(self._eps, self._at(x).eps) ** differences.STEP_POWER[scheme] * sizes
        return np.asarray(np.abs(steps) if scheme == "cs" else steps)

    def _probed(self, at: Array, idx: Any) -> Small:
        """The residuals for the difference formulas: counted, and complex for "cs"."""
        if self._watch is not None:
            self._watch()
        self._counts.nfev += not self._mirrors_scipy
        r = self._returned(self._fun, at, idx=idx)
        return self._vector(r, at.real, idx, "fiubc" if self._jac == "cs" else "fiub")


def is_double(values: Any, axes: int) -> bool:
    """Whether it is a numpy array in float64 with so many axes."""
    return type(values) is np.ndarray and values.dtype == np.float64 and values.ndim == axes


def _dense(J: Any) -> Small | None:
    """A Jacobian as an array; None if it is not dense, and too large to be made dense."""
    if isinstance(J, np.ndarray):
        return J
    if not _is_small(J):
        return None
    return np.asarray(J.toarray() if issparse(J) else J @ np.eye(J.shape[1]), dtype=np.float64)


def _is_small(J: Any) -> bool:
    m, n = J.shape
    return bool(n <= FEW_UNKNOWNS and m * n <= FEW_ENTRIES)


def _scaled(J: Any, root: Small) -> Any:
    """J with its rows times the entries of `root`."""
    if isinstance(J, LinearOperator):
        return aslinearoperator(diags_array(root)) @ J
    return csr_array(diags_array(root) @ J) if issparse(J) else J * root[:, None]


def _times(J: Any, v: Array) -> Small:
    """J v, in float64."""
    return np.asarray(J @ _in_dtype_of(J, v), dtype=np.float64).reshape(-1)


def _transposed(J: Any, u: Small) -> Small:
    """J^T u."""
    if is_double(J, 2):
        return np.asarray(J.T.dot(u))
    u = _in_dtype_of(J, u)
    return np.asarray(J.rmatvec(u) if isinstance(J, LinearOperator) else J.T @ u).reshape(-1)


def _squared_columns(J: Any, weights: Small) -> Small:
    """The diagonal of J^T diag(weights) J."""
    squares = J.power(2).T @ weights if issparse(J) else np.einsum("i,ij,ij->j", weights, J, J)
    return np.asarray(squares)


def _in_dtype_of(J: Any, u: Small) -> Small:
    """`u` in the dtype of a dense matrix, which would be converted as a whole otherwise."""
    return u.astype(J.dtype, copy=False) if isinstance(J, np.ndarray) else u
