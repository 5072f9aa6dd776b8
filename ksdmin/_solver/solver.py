"""A run in the hands of its user, iteration by iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from scipy.optimize import OptimizeResult

from ksdmin._options import MethodOptions
from ksdmin._result import Status
from ksdmin._solver.arguments import described, own_method
from ksdmin._solver.observer import intermediate


class Solver(Iterator[OptimizeResult]):
    """A run that you iterate over: between two iterations it is yours.

    ``minimize`` is this loop: whoever stops it, saves it, looks at it or goes on with it gets the
    same iterations.

    Parameters
    ----------
    fun, x0, args, method, jac, hess, hessp, bounds, constraints, tol, callback, options, subsets, \
precond, rng
        As in :func:`ksdmin.minimize`; `method` is "ksd" or "hf".

    Attributes
    ----------
    status : Status or None
        Why the run has ended; None: there is more to do.

    Notes
    -----
    Iterating gives what a callback gets as ``intermediate_result``: an ``OptimizeResult`` with `x`,
    `fun`, `jac`, `nit`, `nfev`, `njev`, `nhev`, `gradient_norm` and `record`, the line of the
    history. Nothing is evaluated before the first iteration is asked for.

    An exception of your functions passes unchanged. The iteration in which it happened can be tried
    again: ``next(solver)`` begins it anew.

    Examples
    --------
    >>> import ksdmin
    >>> from scipy.optimize import rosen, rosen_der
    >>> solver = ksdmin.Solver(rosen, [-1.2, 1.0], jac=rosen_der)
    >>> for iteration in solver:
    ...     if iteration.fun < 1e-3:
    ...         break
    >>> solver.result().status == ksdmin.Status.RUNNING
    True
    >>> for iteration in solver:  # it goes on
    ...     pass
    >>> solver.result().success, solver.status
    (True, <Status.CONVERGED: 0>)
    """

    def __init__(
        self,
        fun: Any,
        x0: Any = None,
        args: Any = (),
        method: str = "ksd",
        jac: Any = None,
        hess: Any = None,
        hessp: Any = None,
        bounds: Any = None,
        constraints: Any = (),
        tol: float | None = None,
        callback: Callable[..., Any] | None = None,
        options: Mapping[str, Any] | MethodOptions | None = None,
        *,
        subsets: Any = None,
        precond: Any = None,
        rng: Any = None,
    ) -> None:
        self._loop = described(
            fun, x0, args, own_method(method), jac, hess, hessp, bounds, constraints, tol,
            callback, options, subsets, precond, rng,
        )  # fmt: skip

    @property
    def status(self) -> Status | None:
        """Why the run has ended; None: there is more to do."""
        return self._loop.status

    def __next__(self) -> OptimizeResult:
        loop = self._loop
        if not loop.advance() or loop.state is None:
            loop.observer.close()
            raise StopIteration
        space = loop.run.space
        return intermediate(loop.state, space.given(loop.state.here.x), space)

    def result(self) -> OptimizeResult:
        """The result by now, as ``minimize`` would return it.

        Before the end its status is ``RUNNING``. What is not known of it (the value on the whole
        set, where the last gradient was of a part) is computed; the run itself goes on as if you
        had not asked.
        """
        return self._loop.result()
