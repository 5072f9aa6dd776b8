"""The methods of this package; runs that the user drives, iteration by iteration."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from array_api_compat import is_jax_array, is_torch_array
from scipy.optimize import OptimizeResult

from ksdmin import _hf as hf
from ksdmin._ksd import start
from ksdmin._ksd import step as ksd
from ksdmin._ksd.state import KSDState, learned_curvature
from ksdmin._ksd.steps.escape import escape
from ksdmin._options import HFOptions, MethodOptions, Options, nearest, parse_options
from ksdmin._problem.arrays import Space
from ksdmin._problem.box import as_box
from ksdmin._problem.entry import bounds_by_name, problem_of
from ksdmin._problem.functions import FunctionProblem
from ksdmin._problem.protocol import Problem
from ksdmin._problem.subsets import WHOLE
from ksdmin._problem.user_values import as_vector, frames_to_the_user
from ksdmin._result import Status
from ksdmin._run.loop import Method, begin
from ksdmin._run.observer import intermediate
from ksdmin._run.resume import loaded

KSD = Method(
    "ksd",
    Options,
    KSDState,
    start.prepare,
    start.start,
    ksd.step,
    escape,
    start.moved,
    learned_curvature,
)
HF = Method("hf", HFOptions, hf.HFState, hf.prepare, hf.start, hf.step)
METHODS = {method.name: method for method in (KSD, HF)}


class Solver(Iterator[OptimizeResult]):
    """A run that you iterate over, one iteration at a time.

    ``minimize`` is this loop. You may stop it, look at it, save it and go on: the iterations are
    the same.

    Parameters
    ----------
    fun, x0, args, method, jac, hess, hessp, bounds, constraints, tol, callback, options, subsets, \
precond, rng
        As in :func:`ksdmin.minimize`; `method` is "ksd" or "hf".

    Attributes
    ----------
    status : Status or None
        Why the run has ended; None while it has not.

    Notes
    -----
    Each iteration yields what a callback gets as ``intermediate_result``: an ``OptimizeResult``
    with `x`, `fun`, `jac`, `nit`, `nfev`, `njev`, `nhev`, `gradient_norm` and `record` (the row of
    the history). Nothing is evaluated before the first ``next(solver)``.

    Exceptions of your functions are passed on unchanged. ``next(solver)`` then repeats the
    iteration that failed.

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
        chosen = own_method(method)
        problem = problem_of(fun, args, jac, hess, hessp, subsets, precond)
        bounds = bounds_by_name(problem, bounds)
        refuse_constraints(constraints, chosen.name)
        if chosen is HF and bounds is not None:
            raise ValueError("method 'hf' cannot handle bounds; 'ksd' can")
        parsed = parse_options(options, chosen.options, tol, frames=frames_to_the_user())
        if jac is hess is hessp is None:
            problem = differentiated(problem, fun, x0, args, precond, bounds)
        self._loop = begin(
            chosen,
            problem,
            x0,
            parsed,
            callback=callback,
            rng=rng,
            subsets=subsets,
            bounds=bounds,
            keep=problem is not fun or isinstance(problem, FunctionProblem),
        )

    @property
    def status(self) -> Status | None:
        """Why the run has ended; None while it has not."""
        return self._loop.status

    def __repr__(self) -> str:
        return f"<Solver: {self._loop.described()}>"

    def __next__(self) -> OptimizeResult:
        loop = self._loop
        try:
            more = loop.advance()
        except StopIteration as error:  # from user code: it must not look like the end of the run
            raise RuntimeError("a function of the problem raised StopIteration") from error
        if not more or loop.state is None:
            loop.observer.close()
            raise StopIteration
        return intermediate(loop.state, loop.observer.records[-1], loop.run.space)

    def result(self) -> OptimizeResult:
        """The result so far, as ``minimize`` would return it.

        Before the end its status is ``RUNNING``. Missing values are computed, such as the value on
        the whole set if the last gradient was that of a part. This does not change the run.
        """
        return self._loop.result()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the run to a file, from which :meth:`load` and :func:`ksdmin.resume` continue it.

        The file is written completely or not at all. An existing file is replaced only if it was
        saved by this run.

        Parameters
        ----------
        path : path
            The file.
        """
        self._loop.save(Path(path))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        problem: Any,
        callback: Callable[..., Any] | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        subsets: Any = None,
        like: Any = None,
    ) -> Solver:
        """Load a run from a file. It continues as if it had not been interrupted.

        Parameters
        ----------
        path, problem, callback, options, subsets, like
            As in :func:`ksdmin.resume`. The file itself is not changed, unless the option
            `checkpoint` names it.

        Returns
        -------
        Solver
            The run, at the iteration where it was saved.
        """
        solver = cls.__new__(cls)
        solver._loop = loaded(METHODS, Path(path), problem, callback, options, subsets, like)
        return solver


def resume(
    path: str | os.PathLike[str],
    problem: Any,
    callback: Callable[..., Any] | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    subsets: Any = None,
    like: Any = None,
) -> OptimizeResult:
    """Continue a saved run to its end.

    On the same machine, CPU and libraries, the result is bit for bit that of an uninterrupted run,
    except for the seconds.

    Parameters
    ----------
    path : path
        The file that the option `checkpoint` or ``Solver.save`` wrote. The run continues to save
        itself there.
    problem : problem object
        The same problem as before: from :func:`as_problem`, :func:`from_torch` and the like, or
        your own. Its value at the saved point is compared with the saved value. It may be on
        another device.
    callback : callable, optional
        As in :func:`minimize`.
    options : mapping, optional
        Options to change from here on, such as ``{"maxiter": 2000}``: only those that decide when a
        run ends, or that report on it. Seconds and evaluations count from the first start.
    subsets : optional
        The same `subsets` that ``minimize`` got, if it got any together with a problem object. An
        iterable of sets is read again from its start, up to the saved iteration.
    like : array, optional
        A vector of the array library, and on the device, to continue with. By default that of
        ``problem.x0``, or else the one that the file names.

    Returns
    -------
    OptimizeResult
        As returned by :func:`minimize`, for the whole run.

    Raises
    ------
    ValueError
        If the file is damaged, is not from ksdmin, or belongs to another version or another
        problem. The message says which. The file is not changed.

    Examples
    --------
    >>> import os, tempfile, ksdmin
    >>> from scipy.optimize import rosen, rosen_der
    >>> problem = ksdmin.as_problem(rosen, jac=rosen_der)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "run.ksd")
    ...     options = {"checkpoint": path, "maxiter": 5}
    ...     first = ksdmin.minimize(problem, [-1.2, 1.0], options=options)
    ...     res = ksdmin.resume(path, problem, options={"maxiter": 1000})
    >>> first.nit, res.success
    (5, True)
    """
    options = {"checkpoint": path, **(options or {})}
    return loaded(METHODS, Path(path), problem, callback, options, subsets, like).to_the_end()


def own_method(method: Any) -> Method:
    """A method of this package by its name; raises for others."""
    name = "" if callable(method) else str(method or "ksd").lower()
    if name not in METHODS:
        hint = nearest(name, METHODS)
        raise ValueError(
            f"method {method!r}{hint}: a Solver takes 'ksd' or 'hf'; SciPy's methods run in one "
            "go, by ksdmin.minimize"
        )
    return METHODS[name]


def differentiated(
    problem: Problem, fun: Any, x0: Any, args: Any, precond: Any, bounds: Any
) -> Problem:
    """The problem with derivatives by torch or jax, if x0 is theirs and `fun` has derivatives.

    If they cannot differentiate `fun`, or not all of it, it stays as it is. Whatever error that is,
    if differences meet it, too, they will report it.
    """
    name = "torch.plain_function" if is_torch_array(x0) else "functional.jax"
    known = is_torch_array(x0) or is_jax_array(x0)
    if problem is fun or not isinstance(problem, FunctionProblem) or not known:
        return problem
    x0 = as_vector(x0)
    box = as_box(bounds, x0)
    x0 = x0 if box is None else box.project(x0)  # nothing is evaluated outside
    args = args if isinstance(args, tuple) else (args,)
    adapter = import_module(f"ksdmin._adapters.{name}")  # as the library is there
    own = problem.in_space(Space(x0))  # an array for precond is checked
    checked = None if precond is None else lambda x, idx: own._diagonal(x, idx, 0.0)
    bounded = box is not None
    whole = WHOLE if problem.subsets is None else problem.subsets.full
    if whole is None:  # the user's own sets, which do not define the whole
        return problem

    def with_args(theta: Any, *idx: Any) -> Any:
        return fun(theta, *idx, *args)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as that of float(x), if x requires a gradient
            tried = adapter.tried(with_args, x0, problem.subsets, whole, checked, bounded)
    except Exception:
        return problem
    return problem if tried is None else tried


def refuse_constraints(constraints: Any, method: str) -> None:
    """Raise for constraints: no method of this package takes them."""
    empty = isinstance(constraints, (tuple, list, dict)) and not constraints
    if constraints is not None and not empty:
        raise ValueError(
            f"method {method!r} cannot handle constraints; methods that can: 'SLSQP', "
            "'trust-constr', 'COBYLA', 'COBYQA'"
        )
