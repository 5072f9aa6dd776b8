"""Pictures of runs; needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ksdmin._options import KINDS, nearest

AGAINST = {
    "seconds": "seconds",
    "passes": "passes over the data",
    "evaluations": "values and gradients computed",
    "iterations": "iterations",
}
SHOWN = {
    "value": "value",
    "gap": "value above the lowest of all runs",
    "gradient_norm": "largest magnitude in the gradient",
}
SPREAD = 30.0  # a quantity that spans more than this factor is drawn on a logarithmic axis


def convergence(
    results: Any, against: str = "passes", show: str | None = None, *, ax: Any = None
) -> Any:
    """Draw the progress of runs, as curves to compare.

    Parameters
    ----------
    results : result, or mapping or sequence of results
        What ``minimize`` returned, or objects with such a `history`; the keys of a mapping are the
        labels.
    against : {"passes", "seconds", "evaluations", "iterations"}
        The horizontal axis. If passes are not known for all runs, evaluations replace them.
    show : {"gap", "value", "gradient_norm"}, optional
        What is drawn. By default the value above the lowest one of all runs, if these values span a
        factor of 30 or more; otherwise the value.
    ax : matplotlib axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib axes
        With logarithmic axes where the numbers span a factor of 30 or more. The points of a single
        run have a colour for each kind of step.

    Examples
    --------
    >>> import ksdmin, ksdmin.plotting
    >>> from scipy.optimize import rosen, rosen_der
    >>> run = lambda method: ksdmin.minimize(rosen, [-1.2, 1.0], jac=rosen_der, method=method)
    >>> ax = ksdmin.plotting.convergence({"KSD": run("ksd"), "HF": run("hf")})
    >>> ax.get_xlabel(), ax.get_yscale()
    ('passes over the data', 'log')
    """
    named = _named(results)
    _check("against", against, AGAINST)
    if against == "passes" and any(np.isnan(h["passes"]).any() for h in named.values()):
        against = "evaluations"
    curves = {name: _column(history, against) for name, history in named.items()}
    heights, show = _heights(named, show)
    if ax is None:
        try:
            from matplotlib import pyplot
        except ImportError:
            raise ImportError("ksdmin.plotting needs matplotlib: pip install matplotlib") from None
        _, ax = pyplot.subplots(layout="constrained")
    for name, across in curves.items():
        ax.plot(across, heights[name], label=name, marker="." if len(across) < 40 else None)
    if len(named) == 1:
        _mark_kinds(ax, *named.values(), *curves.values(), *heights.values())
    ax.set(xlabel=AGAINST[against], ylabel=SHOWN[show])
    ax.set_xscale("log" if _spans([u[1:] for u in curves.values()]) else "linear")
    ax.set_yscale("log" if _spans(heights.values()) else "linear")
    if ax.get_legend_handles_labels()[1]:
        ax.legend()
    return ax


def _mark_kinds(ax: Any, history: Any, across: Any, heights: Any) -> None:
    """Points in a colour for each kind of step, if a run has several kinds."""
    kinds = np.array([getattr(record, "kind", "") for record in history])
    names = [kind for kind in KINDS if (kinds == kind).any()]
    for name in names if len(names) > 1 else ():
        made = kinds == name
        ax.plot(across[made], heights[made], ".", label=f"{name} ({made.sum()})")


def _named(results: Any) -> dict[str, Any]:
    """The histories by their labels; a single run has a label that matplotlib does not show."""
    if hasattr(results, "history"):
        results = {"_run": results}
    elif not isinstance(results, Mapping):
        if not isinstance(results, Sequence) or not results:
            raise TypeError(
                "results: expected what minimize returned, or a mapping or sequence of such, not "
                f"{results!r}"
            )
        results = {f"run {k + 1}": res for k, res in enumerate(results)}
    for name, res in results.items():
        if not len(getattr(res, "history", ())):
            raise ValueError(f"results: {name!r} has no history; SciPy's own methods keep none")
    return {str(name): res.history for name, res in results.items()}


def _column(history: Any, name: str) -> npt.NDArray[np.float64]:
    """A column of a history, or what is counted, as numbers."""
    if name == "evaluations":
        return np.asarray(history["nfev"] + history["njev"] + 2 * history["nhev"], dtype=float)
    return np.asarray(history["iteration" if name == "iterations" else name], dtype=float)


def _heights(named: Mapping[str, Any], show: str | None) -> tuple[dict[str, Any], str]:
    """What is drawn of each run, and its name."""
    values = {name: _column(history, "value") for name, history in named.items()}
    lowest = min(np.nanmin(np.where(np.isfinite(v), v, np.nan)) for v in values.values())
    gaps = {name: np.where(v > lowest, v - lowest, np.nan) for name, v in values.items()}
    if show is None:
        show = "gap" if _spans(gaps.values()) else "value"
    _check("show", show, SHOWN)
    if show == "gap":
        return gaps, show
    return {name: _column(history, show) for name, history in named.items()}, show


def _spans(columns: Any) -> bool:
    """Whether positive numbers span a large factor."""
    numbers = np.concatenate([np.asarray(column, dtype=float) for column in columns])
    numbers = numbers[np.isfinite(numbers)]
    if not numbers.size or (numbers < 0).any():
        return False
    positive = numbers[numbers > 0]
    return bool(positive.size and positive.max() >= SPREAD * positive.min())


def _check(name: str, given: str, known: Mapping[str, str]) -> None:
    if given not in known:
        expected = ", ".join(map(repr, known))
        raise ValueError(
            f"{name}={given!r}: expected one of {expected}{nearest(str(given), known)}"
        )
