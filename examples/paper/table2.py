"""The paper's Table 2 beside ours, in Markdown, from the stored runs."""

from __future__ import annotations

import math
from statistics import fmean, stdev

from scipy.stats import t as student

from examples.harness.store import Run
from examples.harness.tables import markdown, median, number, origins, spread
from examples.paper.published_rows import Published, Row
from examples.paper.run_config import rows
from examples.paper.seed_series import Series, best_series, stopping_point

HEADER = (
    *("method", "seeds", "train error", "CV error", "CV less HF's", "seconds", "time, to the end"),
    *("at HF's train error", "at HF's CV error", "seconds to the paper's KSD"),
    *("train / CV, not stopped", "settings (of tried)"),
)
NOTE = (
    "Errors are those where early stopping ends a run: at the least error on held-out data. Mean "
    "[least, most] over seeds; differences are paired by seed, with a 95% interval. Times are "
    "shares of HF's for the same seed, the median: to the end, and to the errors that HF ends "
    "with (a dash: never). Then the seconds until both errors are those of the paper's KSD, and "
    'the mean errors when the seconds are spent. "Shared" runs had the processor together with '
    "others, which slows HF and L-BFGS, with all samples in each step, more than KSD: compare them "
    "with each other."
)


def table(runs_of_row: dict[str, list[Run]]) -> str:
    """All rows that have runs."""
    known = rows(small=False).items()
    order = [name for name, row in known if row.beside is None and name in runs_of_row]
    return "\n".join([NOTE, "", *(row_table(name, runs_of_row) for name in order)])


def row_table(name: str, runs_of_row: dict[str, list[Run]]) -> str:
    """One row of the paper: its numbers first, then ours, then those of other models."""
    runs = runs_of_row[name]
    row, series = rows(runs[0]["config"]["small"])[name], best_series(runs)
    lines = published_cells(row.published, row.task.unit) if row.published else []
    lines += [our_cells(one.name, one, hf_for(one, series), row) for one in series]
    for other in (other for other, own in rows(small=False).items() if own.beside == name):
        beside = best_series(runs_of_row.get(other, []))
        lines += [
            our_cells(f"{other}, {one.name}", one, hf_for(one, series), row) for one in beside
        ]
    measured = f"Measured on {origins(runs, '{hardware}, {date}, commit {commit}')}."
    parts = [f"## {row.title}", markdown(HEADER, lines), measured, *digit_table(series)]
    return "\n\n".join(parts) + "\n"


def hf_for(one: Series, series: list[Series]) -> Series | None:
    """HF on the same samples, code layer and load, by the curvature it is meant for."""
    alike = ("held_out", "code")
    return next(
        (
            other
            for other in series
            if (other.config["method"], other.config["curvature"]) == ("hf", "gauss-newton")
            and all(other.config[name] == one.config[name] for name in alike)
            and other.shared == one.shared
        ),
        None,
    )


def published_cells(published: Published, unit: str) -> list[list[str]]:
    """The paper's Table 2."""
    return [
        [f"{name}, the paper's", "", f"{train}{unit}", f"{test}{unit}", "", "", f"{time:g}"]
        + [""] * 5
        for name, (train, test), time in (
            ("HF", published.hf, 1.0),
            ("KSD", published.ksd, published.time),
        )
    ]


def our_cells(name: str, series: Series, hf: Series | None, row: Row) -> list[str]:
    """A method of ours."""
    unit = row.task.unit
    return [
        name,
        str(len(series.runs)),
        spread(series.at_stop("train").values(), unit),
        spread(series.at_stop("test").values(), unit),
        difference(series, hf, unit),
        spread(series.at_stop("seconds").values()),
        ratio(series, hf, None),
        ratio(series, hf, "train"),
        ratio(series, hf, "test"),
        until(series, row.published.ksd) if row.published else "",
        " / ".join(f"{fmean(series.at_end(column)):.3g}{unit}" for column in ("train", "test")),
        settings(series),
    ]


def difference(series: Series, hf: Series | None, unit: str) -> str:
    """CV error less HF's, seed by seed."""
    if hf is None or series is hf:
        return ""
    ours, theirs = series.at_stop("test"), hf.at_stop("test")
    gaps = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    if len(gaps) < 2:
        return f"{gaps[0]:+.3g}{unit}" if gaps else ""
    half = student.ppf(0.975, len(gaps) - 1) * stdev(gaps) / math.sqrt(len(gaps))
    return f"{fmean(gaps):+.3g}{unit} ± {half:.2g}"


def ratio(series: Series, hf: Series | None, column: str | None) -> str:
    """Seconds over HF's: to the end, or to the error in `column` that HF ends with."""
    if hf is None:
        return ""
    shares = []
    for seed in series.runs.keys() & hf.runs.keys():
        own, theirs = series.runs[seed]["trace"], hf.runs[seed]["trace"]
        stop = stopping_point(theirs)
        if column is None:
            share = own["seconds"][stopping_point(own)] / theirs["seconds"][stop]
        else:
            level = {column: theirs[column][stop]}
            share = first_below(own, **level) / first_below(theirs, **level)
        shares.append(share)
    return number(median(shares), ".2g", missing="–")


def first_below(trace: dict[str, list[float]], **errors: float) -> float:
    """Seconds until all of these errors are reached; infinite where they never are."""
    for i, seconds in enumerate(trace["seconds"]):
        if all(trace[column][i] <= error for column, error in errors.items()):
            return seconds
    return math.inf


def until(series: Series, errors: tuple[float, float]) -> str:
    """Seconds until the train and the test error are both as low; and how many runs get there."""
    train, test = errors
    runs = series.runs.values()
    times = [first_below(run["trace"], train=train, test=test) for run in runs]
    reached = [time for time in times if math.isfinite(time)]
    if not reached:
        return "–"
    return spread(reached) + ("" if len(reached) == len(times) else f", {len(reached)} runs")


def settings(series: Series) -> str:
    """What the series was run with."""
    config = series.config
    words = [f"l2 {config['l2']:g}", f"{config['seconds']:g} s"]
    words += [f"rate {config['rate']:g}"] if config["rate"] is not None else []
    words += [f"{name} {value}" for name, value in config["options"].items()]
    return f"{', '.join(words)} ({series.tried})"


def digit_table(series: list[Series]) -> list[str]:
    """Digit error by noise, where the test samples are frames of spoken words."""
    errors = {
        one.name: [run["digit_errors"] for run in one.runs.values()]
        for one in series
        if all("digit_errors" in run for run in one.runs.values())
    }
    if not errors:
        return []
    noises = list(next(iter(errors.values()))[0])
    rows = [
        [name, *(f"{fmean(run[noise] for run in runs):.3g}" for noise in noises)]
        for name, runs in errors.items()
    ]
    title = "Digit error (%) by noise, from summed frame posteriors:"
    return [title, markdown(["method", *noises], rows)]
