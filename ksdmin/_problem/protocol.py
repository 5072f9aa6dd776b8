"""A problem: a few verbs (methods) at (x, idx), and its traits, which say what else it can do.

The minimisers call these verbs and nothing else. `idx` names the samples that a verb averages over:
`WHOLE` (``slice(None)``, so that ``X[idx]`` copies nothing), a sorted int64 array, or any object of
the user's own subsets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ksdmin._problem.arrays import Array

Product = Callable[[Array], Array]

# Values contain some roundings of their dtype; a problem may declare more (`Traits.noise`).
VALUE_ROUNDINGS = 30
# The overhead of a call, of the user's function or of ours: 20 to 50 microseconds, in operations
# of a large matrix product (one core of a Xeon at 2.5 GHz with OpenBLAS).
CALL_COST = 1e6


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a run has to know about a problem of your own: its attribute ``traits``.

    The defaults suit a smooth function with exact derivatives. A problem that wraps another one
    should copy its traits: ``self.traits = inner.traits``. The verbs are the methods of a
    :class:`Problem`; some traits declare optional ones.

    Attributes
    ----------
    nonlinear : bool
        Whether the losses belong to a model that is not linear in its parameters, such as a net.
        With subsets, the first steps are then damped, and the sets B (curvature) and C (search) may
        be small.
    noise : float, optional
        The relative rounding error of values. By default 30 times the dtype's eps.
    gradient_accuracy, product_accuracy : float
        The relative error of gradients and of curvature products is the dtype's eps to this power.
        1.0 means exact up to rounding; finite differences have less.
    has_diagonal : bool
        Whether ``value_and_gradient(x, idx, diagonal=True)`` also returns the diagonal of the
        curvature, for the preconditioner.
    diagonal_power : float
        The power to raise this diagonal to: 1 for the diagonal of the curvature, 0.75 for squared
        gradients.
    separate_gradient : bool
        Whether ``value`` alone is cheaper than ``value_and_gradient``, and a later gradient at the
        same point does not compute the value again.
    has_projected_gradient : bool
        Whether there is the verb ``value_and_projected_gradient(x, idx, V)``: the value, and the
        products of the gradient g with the rows of V. Declare it if that is cheaper than g.
    gradient_travels : bool
        Whether a search should avoid g even if the next iteration could use it, because g comes
        over a network. It has an effect with `has_projected_gradient` and a diagonal: the next
        iteration then computes the gradient together with the diagonal in any case.
    has_matrix : bool
        Whether there is the verb ``matrix(x, idx)``: the whole curvature matrix, of shape (n, n).
        A run calls it where it is less work than products.
    matrix_cost : float, optional
        The cost of ``matrix`` in units of one product. By default n / 2, as for X^T W X of a linear
        model. 0 means that a product computes the whole matrix, too.
    has_jacobian : bool
        Whether there is the verb ``jacobian(x, idx)``: the curvature as a :class:`Jacobian`. A run
        calls it where it is less work than products, and the rows fit into memory.
    rows_per_sample : float
        The mean number of rows (residuals) for each sample.
    sum_of_squares : bool
        Whether the losses are squared residuals: where the loss is zero, all residuals are zero.
        With subsets and a Jacobian, one sample then serves as all three sets.
    matrix_memory : float, optional
        The most bytes for the rows or the matrix. By default 1 GiB.
    product_cost : float, optional
        The cost of a product for each sample, in floating-point operations of a large matrix
        product. By default 32 n, as measured for a linear model.
    call_cost : float
        The overhead of a call of a verb, in the same unit. For a GPU: the operations that it could
        do during the launch.
    least_set : float
        A smaller set than this costs no less. If there are no more samples in all, a run begins
        with all of them, unless the user asks for sizes. 0: smaller sets always cost less.
    fewest_samples : int
        The least number of samples in the first sets, unless the user asks for sizes. It is more
        than one if the samples of a set share statistics, as in BatchNorm.
    has_factors : bool
        Whether there is the verb ``factors(x, idx)``: Kronecker factors of the curvature, as
        :class:`Factors`. They replace the diagonal as the preconditioner.
    has_finer_arithmetic : bool
        Whether there is the verb ``in_finer_arithmetic()``: the same problem with less rounding, or
        None. A run changes to it when the steps gain little more than rounding. It continues in
        float64 if the ``x0`` of that problem is in float64.
    counts_itself : bool
        Whether there is the verb ``counting(counts)``: a copy of the problem for one run, which
        adds the true number of evaluations to ``counts.nfev``, ``counts.njev`` and ``counts.nhev``.

    Examples
    --------
    >>> import ksdmin
    >>> ksdmin.Traits(nonlinear=True, noise=1e-5).noise
    1e-05
    """

    nonlinear: bool = False
    noise: float | None = None
    gradient_accuracy: float = 1.0
    product_accuracy: float = 1.0
    has_diagonal: bool = False
    diagonal_power: float = 1.0
    separate_gradient: bool = False
    has_projected_gradient: bool = False
    gradient_travels: bool = False
    has_matrix: bool = False
    matrix_cost: float | None = None
    has_jacobian: bool = False
    rows_per_sample: float = 1.0
    sum_of_squares: bool = False
    matrix_memory: float | None = None
    product_cost: float | None = None
    call_cost: float = CALL_COST
    least_set: float = 0.0
    fewest_samples: int = 1
    has_factors: bool = False
    has_finer_arithmetic: bool = False
    counts_itself: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            switch = isinstance(field.default, bool)
            if switch and not isinstance(value, (bool, np.bool_)):
                raise TypeError(f"Traits: {field.name}={value!r}, expected True or False")
            if not switch and value is not None and not 0 <= value < math.inf:
                raise ValueError(f"Traits: {field.name}={value!r}, expected a number from 0 up")


DEFAULT_TRAITS = Traits()


class Jacobian(NamedTuple):
    """The curvature R^T R + P, and the gradient R^T r + P x, of a sum of squares.

    Attributes
    ----------
    rows : array
        R, of shape (rows, n): the weighted Jacobian of the residuals. A run may overwrite it.
    residuals : array
        r, one entry per row: the residuals, weighted alike.
    penalty : float or array
        The factor p of x^T x / 2 in the objective, where P = p I. Or one factor for each variable:
        the diagonal of P, in x^T P x / 2.
    at : callable, optional
        ``at(y) -> (value, residuals)`` at another point y, on the same samples: the value, and the
        residuals with the same weights as `residuals`. A run corrects its steps with them. Without
        `at`, steps are not corrected.

    Examples
    --------
    Rosenbrock's function as a problem of one's own:

    >>> import numpy as np, ksdmin
    >>> def residuals(x):
    ...     return np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]])
    >>> class Valley:
    ...     traits = ksdmin.Traits(has_jacobian=True, rows_per_sample=2)
    ...     def value(self, x, idx):
    ...         return residuals(x) @ residuals(x) / 2
    ...     def jacobian(self, x, idx):
    ...         rows = np.array([[-20 * x[0], 10.0], [-1.0, 0.0]])
    ...         at = lambda y: (self.value(y, idx), residuals(y))
    ...         return ksdmin.Jacobian(rows, residuals(x), at=at)
    ...     def value_and_gradient(self, x, idx):
    ...         J = self.jacobian(x, idx)
    ...         return self.value(x, idx), J.rows.T @ J.residuals
    ...     def curvature(self, x, idx):
    ...         R = self.jacobian(x, idx).rows
    ...         return lambda v: R.T @ (R @ v)
    >>> bool(ksdmin.minimize(Valley(), np.array([-1.2, 1.0])).success)
    True
    """

    rows: Array
    residuals: Array
    penalty: float | Array = 0.0
    at: Callable[[Array], tuple[Any, Array]] | None = None

    @property
    def has_penalty(self) -> bool:
        """Whether there is a penalty."""
        return not isinstance(self.penalty, float) or self.penalty != 0


@runtime_checkable
class Problem(Protocol):
    """An objective: three methods (verbs) at (x, idx), which are means over the samples `idx`.

    Optional attributes: ``traits`` (see :class:`Traits`), ``x0`` (where to start) and ``subsets``
    (the default sets). What the verbs return is checked, and they get copies of x and v. The traits
    declare optional verbs, such as ``matrix(x, idx)``, the whole curvature matrix.

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


# The verbs that a problem has only if its traits declare them.
OPTIONAL_VERBS = {
    "has_projected_gradient": "value_and_projected_gradient",
    "has_matrix": "matrix",
    "has_jacobian": "jacobian",
    "has_factors": "factors",
    "has_finer_arithmetic": "in_finer_arithmetic",
    "counts_itself": "counting",
}


def traits_of(problem: Problem) -> Traits:
    """The traits that a problem declares, or the defaults.

    A trait outside ``traits``, or a verb that is not declared, would be ignored silently: it is an
    error.
    """
    kind, declared = type(problem).__name__, getattr(problem, "traits", None)
    if declared is None:
        known = [*(field.name for field in fields(Traits)), *OPTIONAL_VERBS.values()]
        undeclared = [name for name in known if hasattr(problem, name)]
        if undeclared:
            raise TypeError(
                f"the problem {kind} has {', '.join(undeclared)}, but no traits: declare them as "
                f"traits = ksdmin.Traits(...); one that wraps another passes on its traits"
            )
        return DEFAULT_TRAITS
    if not isinstance(declared, Traits):
        raise TypeError(f"{kind}.traits: expected a ksdmin.Traits, not {type(declared).__name__}")
    for trait, verb in OPTIONAL_VERBS.items():
        if getattr(declared, trait) and not callable(getattr(problem, verb, None)):
            raise TypeError(f"{kind}.traits says {trait}=True, but there is no method {verb}")
    return declared
