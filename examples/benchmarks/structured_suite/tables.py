"""The table of the runs of sparse and structured problems."""

from __future__ import annotations

from typing import Any

Run = dict[str, Any]

# By how much more than the lowest cost of trf's counts as the same.
SAME = 1e-6
HEAD = (
    "problem",
    "loss",
    "unknowns",
    "ksdmin",
    "trf, lsmr",
    "ratio",
    "ksdmin's last",
    "trf's last",
)


def report(runs: list[Run]) -> str:
    """Seconds to the same cost, as a table in Markdown."""
    lines = ["| " + " | ".join(HEAD) + " |", "|---|---|" + "---:|" * (len(HEAD) - 2)]
    for row in rows(runs):
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def rows(runs: list[Run]) -> list[list[str]]:
    """A row for each problem that both methods have run on."""
    by = {(run["problem"], run["method"]): run for run in runs}
    made = []
    for name in dict.fromkeys(run["problem"] for run in runs):
        ours, theirs = by.get((name, "ksdmin")), by.get((name, "trf"))
        if ours is None or theirs is None:
            continue
        mine, other = (seconds_to(run, theirs["cost"]) for run in (ours, theirs))
        ratio = "-" if mine is None or other is None else f"{mine / other:.2g}"
        costs = f"{ours['cost']:.8g}", f"{theirs['cost']:.8g}"
        seconds = _shown(mine), _shown(other)
        made.append([ours["name"], ours["loss"], str(ours["unknowns"]), *seconds, ratio, *costs])
    return made


def seconds_to(run: Run, cost: float) -> float | None:
    """Until a run reached this cost, and a millionth more; None: it did not."""
    return next((seconds for seconds, at in run["trace"] if at <= (1 + SAME) * cost), None)


def _shown(seconds: float | None) -> str:
    return (
        "not reached"
        if seconds is None
        else f"{seconds:.2g} s"
        if seconds < 100
        else f"{seconds:.0f} s"
    )
