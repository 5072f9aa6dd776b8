"""How a result shows itself: lines of text, and HTML with a small curve for notebooks."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from ksdmin._problem.arrays import to_host

WHOLE = 12  # entries up to which a vector is shown whole
EDGE = 3  # entries shown at either end of a longer one
COLUMNS = 79  # that lines of text fit in
BLOCKS = "▁▂▃▄▅▆▇█"
BARS = 24  # of a curve in text
WIDTH, HEIGHT, MARGIN = 240, 48, 4  # of a curve in HTML, in pixels
COUNTS = ("nit", "nfev", "njev", "nhev")
SHOWN = {*COUNTS, "message", "success", "status", "cost", "fun", "x", "jac", "passes"}
SHOWN |= {"kinds", "history"}


def text(result: Mapping[str, Any], status: str) -> str:
    """The fields in SciPy's form, vectors shortened, the history as a curve."""
    rows = _rows(result, status)
    width = max((len(name) for name, _ in rows), default=0) + 1
    lines = []
    for name, value in rows:
        lines += _folded(f"{name:>{width}}: ", value)
        if name == "history" and (levels := _levels(result[name])):
            bars = [BLOCKS[round(level * (len(BLOCKS) - 1))] for level in levels]
            lines.append(" " * (width + 2) + "".join(bars[i] for i in _picked(len(bars), BARS)))
    return "\n".join(lines)


def _folded(title: str, value: str) -> list[str]:
    """A line, or as many as it takes, with the title before the first."""
    inset = " " * len(title)
    lines = [
        line
        for part in value.splitlines()
        for line in textwrap.wrap(part, COLUMNS - len(title), break_on_hyphens=False)
    ]
    return [(inset if i else title) + line for i, line in enumerate(lines or [""])]


def html(result: Mapping[str, Any], status: str) -> str:
    """The same as a table. Colours are the page's own, so that it reads in the dark too."""
    cells = [
        f'<tr><th style="text-align:right;vertical-align:top">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}'
        f"{_svg(_levels(result[name])) if name == 'history' else ''}</td></tr>"
        for name, value in _rows(result, status)
    ]
    return f'<table class="ksdmin-result">{"".join(cells)}</table>'


def _rows(result: Mapping[str, Any], status: str) -> list[tuple[str, str]]:
    """Name and value of what `result` has (a user may have taken fields out, or put some in)."""
    shown: dict[str, Callable[[Any], str]] = {
        "message": str,
        "success": str,
        "status": lambda code: f"{code} {status}".rstrip(),
        "cost": _number,
        "fun": lambda f: _vector(f, magnitude=True) if np.ndim(f) == 1 else _number(f),
        "x": _vector,
        "jac": lambda g: _matrix(g) if len(np.shape(g)) == 2 else _vector(g, magnitude=True),
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
        rows.append(("history", _history(result["history"])))
    if rest := [_mentioned(name, result[name]) for name in result if name not in SHOWN]:
        rows.append(("also", ", ".join(rest)))
    return rows


def _mentioned(name: Any, value: Any) -> str:
    """A field that is named rather than shown: with its word, or its shape."""
    shape = getattr(value, "shape", None)
    if isinstance(value, str) and len(value) <= COLUMNS // 2:
        return f"{name} {value!r}"
    size = " x ".join(map(str, shape or ()))
    if name == "hess_inv" and size:
        size += ", rough"  # ksdmin.covariance is not
    return f"{name} ({size})" if size else str(name)


def _number(value: Any, digits: int = 10) -> str:
    return f"{value:.{digits}g}" if isinstance(value, (int, float)) else str(value)


def _vector(v: Any, *, magnitude: bool = False) -> str:
    """A vector, or the ends of a long one: a device is asked for no more than is shown."""
    try:
        n = int(v.shape[0])
        ends = [to_host(part) for part in ((v,) if n <= WHOLE else (v[:EDGE], v[-EDGE:]))]
        largest = f"{float(abs(v).max()):.2e}" if magnitude and n else ""
    except (AttributeError, IndexError, TypeError):  # None, or the user's own
        return repr(v)
    left_out = f" ... {n - 2 * EDGE:,} more ... "
    entries = left_out.join(" ".join(f"{entry:.3g}" for entry in end) for end in ends)
    return f"[{entries}], " + (f"max {largest}" if largest else f"n = {n}")


def _matrix(J: Any) -> str:
    """A Jacobian by its shape."""
    return " x ".join(map(str, J.shape))


def _history(history: Sequence[Any]) -> str:
    if not history:
        return "empty"
    first, last = history[0], history[-1]
    norms = f"max |gradient| {first.gradient_norm:.2e} -> {last.gradient_norm:.2e}"
    return f"{norms} in {last.seconds:.3g} s"


def _levels(history: Sequence[Any]) -> list[float]:
    """The gradient norms of a run on a logarithmic scale, from 0 (smallest) to 1 (largest)."""
    norms = [record.gradient_norm for record in history]
    known = [math.log(norm) for norm in norms if 0 < norm < math.inf]
    if len(norms) < 2 or not known:
        return []
    low, span = min(known), max(known) - min(known) or 1.0

    def level(norm: float) -> float:
        if norm == 0:
            return 0.0
        return (math.log(norm) - low) / span if math.isfinite(norm) else 1.0

    return [level(norm) for norm in norms]


def _picked(n: int, most: int) -> list[int]:
    """At most so many of n positions, first and last among them."""
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
