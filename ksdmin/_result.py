"""What a run reports: statuses and their messages, the history, the result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, NamedTuple, overload
from weakref import ref

import numpy as np
import numpy.typing as npt
from scipy.optimize import OptimizeResult

from ksdmin import _repr
from ksdmin._options import nearest


class Status(IntEnum):
    """Why a run ended. Codes 0 to 3 and 99 are SciPy's.

    A run is a success by the gradient test (``CONVERGED``: `gtol`, or `gtol_rel`), by a test that
    was asked for beside it (``FTOL``, ``XTOL``), or by its value (``TARGET``).

    Examples
    --------
    >>> import ksdmin
    >>> res = ksdmin.minimize(lambda x: x @ x, [1.0], options={"maxiter": 0})
    >>> ksdmin.Status(res.status).name
    'MAXITER'
    """

    CONVERGED = 0
    MAXITER = 1
    PRECISION_LOSS = 2
    NOT_FINITE = 3
    MAXFUN = 4
    MAXTIME = 5
    UNBOUNDED = 6
    OUT_OF_SETS = 7
    INTERRUPTED = 8
    FAILED = 9
    RUNNING = 10
    TARGET = 11
    VALIDATION = 12
    FTOL = 13
    XTOL = 14
    CALLBACK = 99


TESTS = (Status.CONVERGED, Status.FTOL, Status.XTOL)
"""What says that one of the tests of convergence holds at the point where a run stands."""

SUCCESSES = (*TESTS, Status.TARGET)

MESSAGES = {
    Status.CONVERGED: "Optimization terminated successfully.",
    Status.MAXITER: "Maximum number of iterations has been exceeded.",
    Status.PRECISION_LOSS: "Desired error not necessarily achieved due to precision loss.",
    Status.NOT_FINITE: "NaN result encountered.",
    Status.MAXFUN: "Maximum number of function evaluations has been exceeded.",
    Status.MAXTIME: "The time limit (maxtime) has been reached.",
    Status.UNBOUNDED: "The objective appears to be unbounded below.",
    Status.OUT_OF_SETS: "The iterable given as subsets has no more sets.",
    Status.INTERRUPTED: "Interrupted from the keyboard; the best point so far is returned.",
    Status.FAILED: "User code raised an exception; this is the best point before it.",
    Status.RUNNING: "The run has not ended; this is the best point so far.",
    Status.TARGET: "The target value (fmin) has been reached.",
    Status.VALIDATION: "The validation value has not fallen for `patience` iterations.",
    Status.FTOL: "Optimization terminated successfully, by ftol.",
    Status.XTOL: "Optimization terminated successfully, by xtol.",
    Status.CALLBACK: "`callback` raised `StopIteration`.",
}


@dataclass(frozen=True)
class Record:
    """One line of the history: where the run stood after an iteration.

    `value` and `gradient_norm` (inf-norm) are on the gradient set A at the new point;
    evaluations, passes, seconds and what processes have exchanged are totals since the start.
    Iteration 0 is the start. `validation` is that of the new point, NaN where it was not computed.
    `kind` is the kind of the step, one of `KINDS`, or of method "hf" "hessian-free".
    """

    iteration: int
    value: float
    gradient_norm: float
    step_norm: float
    accepted: bool
    dim: int
    size_A: int | None
    size_B: int | None
    size_C: int | None
    inner_iterations: int
    nfev: int
    njev: int
    nhev: int
    passes: float
    seconds: float
    reductions: int = 0
    reduced_bytes: int = 0
    validation: float = math.nan
    kind: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self._comparable() == other._comparable()

    def __hash__(self) -> int:
        return hash(self._comparable())

    def _comparable(self) -> tuple[Any, ...]:
        """The fields; a number that is not known, NaN, is equal to itself here."""
        values = (getattr(self, field.name) for field in fields(self))
        return tuple("nan" if value != value else value for value in values)


class History(Sequence[Record]):
    """The records of a run; a column by name: ``res.history["value"]``.

    Examples
    --------
    >>> import ksdmin
    >>> res = ksdmin.minimize(lambda x: (x @ x), [3.0, 4.0], jac=lambda x: 2 * x)
    >>> [float(v) for v in res.history["value"]]
    [25.0, 0.0]
    >>> res.history[-1].nhev
    0
    """

    columns = tuple(field.name for field in fields(Record))

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self._records = tuple(records)

    @overload
    def __getitem__(self, key: int) -> Record: ...
    @overload
    def __getitem__(self, key: slice) -> History: ...
    @overload
    def __getitem__(self, key: str) -> npt.NDArray[Any]: ...
    def __getitem__(self, key: int | slice | str) -> Any:
        if isinstance(key, str):
            if key not in self.columns:
                known = ", ".join(self.columns)
                raise KeyError(f"no column {key!r}{nearest(key, self.columns)}; there are {known}")
            return np.array([getattr(record, key) for record in self._records])
        return History(self._records[key]) if isinstance(key, slice) else self._records[key]

    def to_dataframe(self) -> Any:
        """A pandas DataFrame: a row for each record, a column for each field."""
        try:
            from pandas import DataFrame
        except ImportError:
            raise ImportError("History.to_dataframe needs pandas: pip install pandas") from None
        return DataFrame({name: self[name] for name in self.columns}).set_index("iteration")

    def __len__(self) -> int:
        return len(self._records)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self._records == other._records

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if not self._records:
            return "<History: empty>"
        first, last = self._records[0], self._records[-1]
        return f"<History: {len(self) - 1} iterations, {first.value:.6g} -> {last.value:.6g}>"


class Origin(NamedTuple):
    """What a result is of: the problem, or None where it is gone."""

    problem: Any
    n: int
    bounds: Any
    subsets: Any


class Result(OptimizeResult):  # type: ignore[misc]
    """SciPy's result, which shows itself in a few lines, and with a curve in notebooks.

    Examples
    --------
    >>> import ksdmin
    >>> ksdmin.minimize(lambda x: (x @ x), [3.0, 4.0], jac=lambda x: 2 * x)
     message: Optimization terminated successfully. max |gradient| ... <= gtol 1e-05.
     success: True
      status: 0 (CONVERGED)
         fun: ...
           x: [...], n = 2
         jac: [...], max ...
      counts: nit 1, ...
       steps: 1 krylov
     history: max |gradient| 8.00e+00 -> ... in ... s
              █▁
        also: preconditioner 'identity', hess_inv (2 x 2, rough)
    """

    def origin(self) -> Origin | None:
        """The problem that it is of; None where that is not known."""
        known: Origin | None = self.__dict__.get("_origin")
        if known is None:
            return None
        problem = known.problem
        return known._replace(problem=problem() if isinstance(problem, ref) else problem)

    def come_from(self, origin: Origin, *, keep: bool) -> None:
        """Remember the problem; without `keep` only as long as others keep it."""
        problem = origin.problem
        if not keep:
            with suppress(TypeError):  # a class may not allow it
                problem = ref(problem)
        self.__dict__["_origin"] = origin._replace(problem=problem)

    def __getstate__(self) -> None:
        """Nothing but its fields is pickled, or deep-copied."""
        return None

    def __copy__(self) -> Result:
        copy = type(self)(self)
        copy.__dict__.update(self.__dict__)
        return copy

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the result has no {name!r}{nearest(name, self)}") from None

    def __repr__(self) -> str:
        return _repr.text(self, self._status_name())

    def _repr_html_(self) -> str:
        return _repr.html(self, self._status_name())

    def _status_name(self) -> str:
        known = {status.value: status.name for status in Status}
        name = known.get(self.get("status"))
        return f"({name})" if name else ""
