"""What a run reports: statuses and their messages, the history, the result."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import IntEnum
from html import escape
from typing import Any, NamedTuple, overload
from weakref import ref

import numpy as np
import numpy.typing as npt
from scipy.optimize import OptimizeResult

from ksdmin._options import nearest
from ksdmin._problem.arrays import to_host


class Status(IntEnum):
    """Why a run ended. Codes 0 to 3 and 99 are SciPy's.

    Three kinds are a success: the gradient test (``CONVERGED``: `gtol`, or `gtol_rel`), a test that
    the user has switched on (``FTOL``, ``XTOL``), and the target value (``TARGET``).

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

    `value` and `gradient_norm` (the largest magnitude) are those of the new point, over the samples
    of the gradient (the set A). `size_A`, `size_B` and `size_C` are the numbers of samples for the
    gradient, the curvature and the search. Evaluations, passes, seconds, and what processes have
    exchanged, are totals since the start. Iteration 0 is the start. `validation` is that of the new
    point, NaN where it was not computed. `kind` is the kind of the step, one of `KINDS`, or
    "hessian-free" for method "hf".
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
    """The problem of a result, or None if it no longer exists.

    `x` is the minimum as a vector of the problem, if ``res.x`` has the form of the user's x0.
    """

    problem: Any
    n: int
    bounds: Any
    subsets: Any
    x: Any = None


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
        """The problem of the result; None if it is not known."""
        known: Origin | None = self.__dict__.get("_origin")
        if known is None:
            return None
        problem = known.problem
        return known._replace(problem=problem() if isinstance(problem, ref) else problem)

    def come_from(self, origin: Origin, *, keep: bool) -> None:
        """Remember the problem; without `keep`, only as long as others keep it."""
        problem = origin.problem
        if not keep:
            with suppress(TypeError):  # a class may not allow weak references
                problem = ref(problem)
        self.__dict__["_origin"] = origin._replace(problem=problem)

    def __getstate__(self) -> None:
        """Only the fields are pickled or deep-copied."""
        return None

    def __copy__(self) -> Result:
        copy = type(self)(self)
        copy.__dict__.update(self.__dict__)
        return copy

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            hint = " (it is 'jac')" if name in ("grad", "gradient") else nearest(name, self)
            raise AttributeError(f"the result has no {name!r}{hint}") from None

    def __repr__(self) -> str:
        return as_text(self, self._status_name())

    def _repr_html_(self) -> str:
        return as_html(self, self._status_name())

    def _status_name(self) -> str:
        names = {status.value: f"({status.name})" for status in Status}
        return names.get(self.get("status"), "")


WHOLE = 12  # vectors with at most so many entries are shown whole
EDGE = 3  # entries shown at both ends of a longer one
COLUMNS = 79  # width of lines of text
BLOCKS = "▁▂▃▄▅▆▇█"
BARS = 24  # of a curve in text
WIDTH, HEIGHT, MARGIN = 240, 48, 4  # of a curve in HTML, in pixels
COUNTS = ("nit", "nfev", "njev", "nhev")
SHOWN = {*COUNTS, "message", "success", "status", "cost", "fun", "x", "jac", "passes"}
SHOWN |= {"kinds", "history"}


def as_text(result: Mapping[str, Any], status: str) -> str:
    """The fields in SciPy's form, vectors shortened, the history as a curve."""
    rows = _rows(result, status)
    width = max((len(name) for name, _ in rows), default=0) + 1
    lines = []
    for name, value in rows:
        title = f"{name:>{width}}: "
        for part in value.splitlines() or [""]:
            inset = " " * len(title)
            indents: Any = {"initial_indent": title, "subsequent_indent": inset}
            lines += textwrap.wrap(part, COLUMNS, break_on_hyphens=False, **indents) or [title]
            title = inset
        if name == "history" and (levels := _levels(result[name])):
            bars = [BLOCKS[round(level * (len(BLOCKS) - 1))] for level in levels]
            lines.append(" " * (width + 2) + "".join(bars[i] for i in _picked(len(bars), BARS)))
    return "\n".join(lines)


def as_html(result: Mapping[str, Any], status: str) -> str:
    """The same as a table, in the colours of the page, for dark themes, too."""
    cells = [
        f'<tr><th style="text-align:right;vertical-align:top">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}'
        f"{_svg(_levels(result[name])) if name == 'history' else ''}</td></tr>"
        for name, value in _rows(result, status)
    ]
    return f'<table class="ksdmin-result">{"".join(cells)}</table>'


def _rows(result: Mapping[str, Any], status: str) -> list[tuple[str, str]]:
    """Names and values of the fields (a user may have removed or added some)."""
    shown: dict[str, Callable[[Any], str]] = {
        "message": str,
        "success": str,
        "status": lambda code: f"{code} {status}".rstrip(),
        "cost": _number,
        "fun": lambda f: _vector(f, magnitude=True) if np.ndim(f) == 1 else _number(f),
        "x": _vector,
        "jac": lambda g: _size(g) if len(np.shape(g)) == 2 else _vector(g, magnitude=True),
    }
    rows = [(name, show(result[name])) for name, show in shown.items() if name in result]
    counts = [f"{name} {result[name]}" for name in COUNTS if name in result]
    if "passes" in result:
        counts.append(f"passes {_number(result['passes'], 4)}")
    if counts:
        rows.append(("counts", ", ".join(counts)))
    if result.get("kinds"):
        steps = [f"{count} {kind}" for kind, count in result["kinds"].items()]
        rows.append(("steps", ", ".join(steps)))
    if "history" in result:
        history, told = result["history"], "empty"
        if history:
            first, last = history[0], history[-1]
            norms = f"max |gradient| {first.gradient_norm:.2e} -> {last.gradient_norm:.2e}"
            told = f"{norms} in {last.seconds:.3g} s"
        rows.append(("history", told))
    if rest := [_mentioned(name, result[name]) for name in result if name not in SHOWN]:
        rows.append(("also", ", ".join(rest)))
    return rows


def _mentioned(name: Any, value: Any) -> str:
    """A field that is only named, with a word or its shape."""
    if isinstance(value, str) and len(value) <= COLUMNS // 2:
        return f"{name} {value!r}"
    size = _size(value)
    if name == "hess_inv" and size:
        size += ", rough"  # ksdmin.covariance is not
    return f"{name} ({size})" if size else str(name)


def _number(value: Any, digits: int = 10) -> str:
    return f"{value:.{digits}g}" if isinstance(value, (int, float)) else str(value)


def _vector(v: Any, *, magnitude: bool = False) -> str:
    """A vector, or the ends of a long one; only what is shown is copied from a device."""
    try:
        n = int(v.shape[0])
        ends = [to_host(part) for part in ((v,) if n <= WHOLE else (v[:EDGE], v[-EDGE:]))]
        largest = f"{float(abs(v).max()):.2e}" if magnitude and n else ""
    except (AttributeError, IndexError, TypeError):  # None, or the user's own
        return repr(v)
    left_out = f" ... {n - 2 * EDGE:,} more ... "
    entries = left_out.join(" ".join(f"{entry:.3g}" for entry in end) for end in ends)
    return f"[{entries}], " + (f"max {largest}" if largest else f"n = {n}")


def _size(value: Any) -> str:
    """The shape of an array, if it has one."""
    return " x ".join(map(str, getattr(value, "shape", None) or ()))


def _levels(history: Sequence[Any]) -> list[float]:
    """The gradient norms of a run on a logarithmic scale, from 0 (smallest) to 1 (largest)."""
    norms = np.array([record.gradient_norm for record in history])
    known = norms[(norms > 0) & (norms < math.inf)]
    if len(norms) < 2 or not len(known):
        return []
    low, high = np.log([known.min(), known.max()])
    heights = (np.log(norms.clip(known.min(), known.max())) - low) / (high - low or 1.0)
    levels: list[float] = np.where(np.isfinite(norms), heights, 1.0).tolist()
    return levels


def _picked(n: int, most: int) -> list[int]:
    """At most so many of n positions, with the first and the last."""
    return [int(i) for i in np.linspace(0, n - 1, min(n, most)).round()]


def _svg(levels: Sequence[float]) -> str:
    """The curve of the gradient norms, in the text's own colour."""
    if not levels:
        return ""
    picked = _picked(len(levels), WIDTH)
    across, down = (WIDTH - 2 * MARGIN) / (len(picked) - 1), HEIGHT - 2 * MARGIN
    points = " ".join(
        f"{MARGIN + k * across:.1f},{MARGIN + (1 - levels[i]) * down:.1f}"
        for k, i in enumerate(picked)
    )
    return (
        f'<br><svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="largest magnitude in the gradient, by iteration, logarithmic">'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5" '
        'stroke-linejoin="round"/></svg>'
    )
