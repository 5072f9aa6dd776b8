"""Tables in Markdown, and how numbers look in them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def markdown(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: bool = False,
    padded: bool = False,
) -> str:
    """A table.

    Parameters
    ----------
    header : sequence of str
        The names of the columns.
    rows : iterable of sequences of str
        The cells.
    numbers : bool
        Whether all columns but the first are shown flush right.
    padded : bool
        Whether cells are filled with spaces, for readers of the text itself.
    """
    lines = [header, *rows]
    widths = [max(map(len, column)) if padded else 0 for column in zip(*lines, strict=True)]
    head, *body = (row([c.ljust(w) for c, w in zip(cells, widths, strict=True)]) for cells in lines)
    return "\n".join([head, _rule(widths, numbers, padded), *body])


def row(cells: Iterable[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells)} |"


def _rule(widths: list[int], numbers: bool, padded: bool) -> str:
    """The line under the header."""
    if padded:
        right = ":" if numbers else "-"
        first, *others = ("-" * (width + 1) for width in widths)
        return "|" + "|".join([f"{first}-", *(other + right for other in others)]) + "|"
    if numbers:
        return row(["---"] + ["---:"] * (len(widths) - 1))
    return "|" + "---|" * len(widths)


def number(value: float, form: str, *, missing: str = "", infinite: str = "–") -> str:
    """A number; `missing` for nan, `infinite` for what was never reached."""
    if math.isnan(value):
        return missing
    return format(value, form) if math.isfinite(value) else infinite


def median(values: Iterable[float]) -> float:
    """Of the values that are known; nan where none is."""
    known = [float(value) for value in values if not math.isnan(value)]
    return statistics.median(known) if known else math.nan


def spread(values: Iterable[float], unit: str = "") -> str:
    """The mean; with several values, as of several seeds, the least and the most."""
    values = list(values)
    mean = f"{statistics.fmean(values):.3g}{unit}"
    return mean if len(values) == 1 else f"{mean} [{min(values):.3g}, {max(values):.3g}]"


def origins(runs: Iterable[Mapping[str, Any]], form: str) -> str:
    """Where and when runs were made: `form` is filled with their entries, each outcome once."""
    return "; ".join(sorted({form.format_map(run) for run in runs}))
