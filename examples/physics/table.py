"""The table: medians of seeds at equal seconds, beside the published errors."""

from __future__ import annotations

from examples.harness.store import Run
from examples.harness.tables import markdown, number, origins
from examples.physics.experiments import EXPERIMENTS
from examples.physics.methods import METHODS, NAMES
from examples.physics.published import PUBLISHED, PUBLISHED_AT_60_S
from examples.physics.seed_series import Case, Series, by_case

ORIGIN = "{hardware}, {date}, commit {commit}, torch {torch}"
NOTE = (
    "Medians of the seeds; in bold the least of a row. Seconds in brackets: the method ended by "
    "itself, as it found no step that lowers the loss. Published errors are of other GPUs and "
    "times."
)


def table(runs: list[Run]) -> str:
    """Errors, losses, and what others have published."""
    cases = by_case(runs)
    parts = [
        "Errors\n\n" + _table(cases, "error", published=True),
        "Losses\n\n" + _table(cases, "loss", published=False),
        NOTE,
        f"Measured on {origins(runs, ORIGIN)}.",
    ]
    return "\n\n".join(parts)


def _table(cases: dict[Case, list[Series]], column: str, *, published: bool) -> str:
    used = {s.method for series in cases.values() for s in series if not s.options}
    methods = [name for name in METHODS if name in used]
    header = ["problem", "seconds", "seeds", *(NAMES[name] for name in methods)]
    header += ["published"] if published else []
    header += ["machine"]
    rows = [_row(case, series, methods, column, published) for case, series in cases.items()]
    return markdown(header, rows, numbers=True)


def _row(
    case: Case, series: list[Series], methods: list[str], column: str, published: bool
) -> list[str]:
    plain = {s.method: s for s in series if not s.options}
    ends = {name: s.median_at_end(column) for name, s in plain.items()}
    cells = [_cell(plain.get(name), ends, column) for name in methods]
    seeds = sorted({len(s.runs) for s in plain.values()})
    counts = "–".join(map(str, sorted({seeds[0], seeds[-1]})))
    head = [_label(case, column), f"{case.seconds:g}", counts]
    return [*head, *cells, *([_published(case)] if published else []), case.hardware]


def _label(case: Case, column: str) -> str:
    experiment = EXPERIMENTS[case.problem]
    words = [case.problem if case.small else experiment.title]
    words += [experiment.measure] if column == "error" else []
    words += [case.dtype] if len(experiment.dtypes) > 1 else []
    words += ["small"] if case.small else []
    return ", ".join(words)


def _cell(series: Series | None, ends: dict[str, float], column: str) -> str:
    if series is None:
        return ""
    value = series.median_at_end(column)
    text = number(value, ".1e", missing="nan")
    text = f"**{text}**" if value == min(ends.values()) else text
    stopped = series.stopped_after()
    return text if stopped is None else f"{text} ({stopped:.0f} s)"


def _published(case: Case) -> str:
    """The most exact one, and the best at 60 s where that is known; a small form has none."""
    if case.small or case.problem not in PUBLISHED:
        return ""
    method, error, source = PUBLISHED[case.problem][-1]
    text = f"{error:.1e} ({method}; {source})"
    at_60 = PUBLISHED_AT_60_S.get(case.problem)
    return text if at_60 is None else f"{text}, {at_60:.1e} at 60 s"
