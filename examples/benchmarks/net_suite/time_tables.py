"""Tables of runs: seconds to some losses, beside Adam's; the best validation loss."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping

from examples.benchmarks.net_suite.experiments import EXPERIMENTS, VARIANTS
from examples.harness.store import Run
from examples.harness.tables import markdown, number, origins

OUTCOME = ("best validation loss", "after", "test error then", "passes")
ABOUT = "{hardware}, torch {torch}, Python {python}, {date}, commit {commit}"
NOTE = (
    "Seconds to a loss on the training samples; in brackets, their ratio to those of Adam's rate "
    "that is the first there. –: not in the time. Medians over seeds."
)


def label(run: Run) -> str:
    """The method, and its rate."""
    return run["method"] if run["rate"] is None else f"{run['method']}, rate {run['rate']:g}"


def seconds_to(trace: Mapping[str, list[float]], level: float) -> float:
    """When the loss first was there: between two points it falls evenly, in its logarithm."""
    seconds, losses = trace["seconds"], trace["train"]
    for i, loss in enumerate(losses):
        if loss > level:
            continue
        if i == 0:
            return seconds[0]
        share = math.log(losses[i - 1] / level) / math.log(losses[i - 1] / max(loss, 1e-30))
        return seconds[i - 1] + share * (seconds[i] - seconds[i - 1])
    return math.inf


def by_label(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The seeds of each method and rate, in the order of the methods."""
    groups: dict[str, list[Run]] = {}
    order = list(VARIANTS)
    for run in sorted(runs, key=lambda run: (order.index(run["method"]), run["rate"] or 0)):
        groups.setdefault(label(run), []).append(run)
    return groups


def median_seconds(runs: Iterable[Run], level: float) -> float:
    """Over seeds; infinite where most of them do not come there."""
    return statistics.median(seconds_to(run["trace"], level) for run in runs)


def adams_seconds(groups: Mapping[str, list[Run]], level: float) -> float:
    """Those of the rate that is the first there; infinite where none is, or Adam has not run."""
    every = (median_seconds(runs, level) for runs in groups.values() if runs[0]["method"] == "adam")
    return min(every, default=math.inf)


def cells(name: str, runs: list[Run], groups: Mapping[str, list[Run]]) -> list[str]:
    """A line of the table of a net."""
    shown = [name]
    for level in EXPERIMENTS[runs[0]["net"]].levels:
        own, adams = median_seconds(runs, level), adams_seconds(groups, level)
        compared = f" ({own / adams:.2f})" if math.isfinite(own) and math.isfinite(adams) else ""
        shown.append(number(own, ".2f") + compared)
    unit = EXPERIMENTS[runs[0]["net"]].task.unit
    best, after, error = (
        statistics.median(column) for column in zip(*map(at_best, runs), strict=True)
    )
    passes = statistics.median(run["trace"]["passes"][-1] for run in runs)
    return [*shown, f"{best:.3g}", f"{after:.1f} s", f"{error:.3g}{unit}", f"{passes:.0f}"]


def at_best(run: Run) -> tuple[float, float, float]:
    """The least validation loss; seconds and test error there."""
    trace = run["trace"]
    at = min(range(len(trace["validation"])), key=trace["validation"].__getitem__)
    return trace["validation"][at], trace["seconds"][at], trace["error"][at]


def by_net(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """In the order of the experiments."""
    runs = list(runs)
    found = {name: [run for run in runs if run["net"] == name] for name in EXPERIMENTS}
    return {name: of_net for name, of_net in found.items() if of_net}


def title(runs: list[Run]) -> str:
    """The net, its size, and the time."""
    one, seeds = runs[0], len({run["seed"] for run in runs})
    times = ", ".join(sorted({f"{run['seconds']:g} s" for run in runs}))
    return (
        f"{one['net']}: {EXPERIMENTS[one['net']].title}; {one['parameters']:,} parameters, "
        f"{one['samples']:,} samples, {times}, {seeds} seed{'s' if seeds > 1 else ''}"
    )


def table(runs: list[Run]) -> str:
    """The methods on one net."""
    groups = by_label(runs)
    levels = (f"s to {level:g}" for level in EXPERIMENTS[runs[0]["net"]].levels)
    rows = [cells(name, of_it, groups) for name, of_it in groups.items()]
    return markdown(("method", *levels, *OUTCOME), rows)


def report(runs: list[Run]) -> str:
    """All tables, and where they were measured."""
    parts = [f"**{title(of_net)}**\n\n{table(of_net)}" for of_net in by_net(runs).values()]
    return "\n\n".join([*parts, f"{NOTE} Measured on {origins(runs, ABOUT)}."])
