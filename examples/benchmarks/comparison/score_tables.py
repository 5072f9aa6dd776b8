"""The tables, in Markdown."""

from __future__ import annotations

import numpy as np

from examples.benchmarks.comparison import solvers
from examples.benchmarks.comparison.scores import (
    Scores,
    broken_promise,
    false_success,
    stored,
    write,
)
from examples.harness.tables import markdown, median, number

HALVES = ("tuning", "held-out")
FEW = 20  # variables up to which wall time is mostly the method's own
HEADER = (
    *("method", "solved by gradient", "solved by value", "false successes", "gtol missed"),
    *("work, median", "work, mean", "within 2x of best", "time", "own µs", "total s"),
)


def ratios(scores: Scores, names: list[str], base: str, tag: str, key: str) -> np.ndarray:
    """What `base` spent over what `tag` spent, on the problems that both solve."""
    pairs = [(scores.runs[base][name][key], scores.runs[tag][name][key]) for name in names]
    return np.array([a / max(b, 1e-9) for a, b in pairs if a is not None and b is not None])


def near_best(scores: Scores, names: list[str], tag: str) -> float:
    """The share of problems where a method needs at most twice the work of the best one."""
    count = 0
    for name in names:
        works = [of_tag[name]["gradient_work"] for of_tag in scores.runs.values()]
        least = min((work for work in works if work is not None), default=0)
        own = scores.runs[tag][name]["gradient_work"]
        count += own is not None and own <= 2 * least
    return count / len(names)


def own_time(scores: Scores, names: list[str], tag: str) -> float:
    """Microseconds that the method itself takes for a unit of work, the median problem's."""
    runs = [scores.runs[tag][name] for name in names]
    spent = [(r["seconds"] - r["inside"]) / max(1, r["nf"] + r["ng"] + 2 * r["nh"]) for r in runs]
    return 1e6 * median(spent)


def small(scores: Scores, names: list[str]) -> list[str]:
    return [name for name in names if scores.about[name]["n"] <= FEW]


def geometric_mean(values: np.ndarray) -> float:
    return float(np.exp(np.log(values).mean())) if len(values) else np.nan


def ratio(value: float) -> str:
    return number(value, ".2f", missing="-")


def row(scores: Scores, names: list[str], base: str, tag: str) -> list[str]:
    runs = {name: scores.runs[tag][name] for name in names}
    is_ksd = scores.heads[tag]["method"] in solvers.KSD
    work = ratios(scores, names, base, tag, "gradient_work")
    time = ratios(scores, small(scores, names) or names, base, tag, "gradient_seconds")
    return [
        solvers.LABELS.get(tag, tag),
        str(sum(run["gradient_work"] is not None for run in runs.values())),
        str(sum(run["value_work"] is not None for run in runs.values())),
        str(sum(false_success(run, scores.about[name]) for name, run in runs.items())),
        str(sum(broken_promise(run) for run in runs.values())) if is_ksd else "",
        "" if tag == base else ratio(median(work)),
        "" if tag == base else ratio(geometric_mean(work)),
        f"{100 * near_best(scores, names, tag):.0f} %",
        "" if tag == base else ratio(median(time)),
        number(own_time(scores, names, tag), ".0f"),
        number(sum(run["seconds"] for run in runs.values()), ".0f"),
    ]


def table(scores: Scores, half: str) -> str:
    names, base = scores.subset(half), next(iter(scores.runs))
    header = [f"time, n <= {FEW}" if h == "time" and small(scores, names) else h for h in HEADER]
    rows = [row(scores, names, base, tag) for tag in scores.runs]
    title = f"**{scores.collection}, {half}: {len(names)} problems**"
    return f"{title}\n\n{markdown(header, rows, numbers=True, padded=True)}\n"


def bounds_note(scores: Scores) -> str:
    """Who left the box, where there is one."""
    if scores.collection != "s2mpj-bounds":
        return ""
    lines = ["Problems in which a method evaluated outside the box (farthest violation):\n"]
    for tag, of_tag in scores.runs.items():
        left = [of_tag[name]["farthest"] for name in scores.names if of_tag[name]["outside"]]
        lines.append(f"- {tag}: {len(left)}" + (f" ({max(left):.1e})" if left else ""))
    return "\n".join(lines) + "\n"


def explanation(scores: Scores) -> str:
    first = next(iter(scores.runs))
    base, head = solvers.LABELS.get(first, first), scores.heads[first]
    budget = ", ".join(f"{value:g} {unit}" for unit, value in head["budget"].items())
    versions = ", ".join(f"{name} {value}" for name, value in head["environment"].items())
    return (
        f"Work is f + g + 2 Hv; the budget of a problem is {budget}. Ratios are those of {base} to "
        f"the method (below 1: {base} needs less), in work and in seconds up to the gradient "
        "target, on problems where both reach it; the mean is the geometric one. False successes "
        'meet neither target; "gtol missed" counts successes of ksd with a gradient '
        'above 1e-5. "Own µs" is what the method itself takes for a unit of work. The targets are '
        f"defined in comparison/scores.py. {base}: {versions}.\n"
    )


def failures(scores: Scores, tag: str) -> str:
    """The problems that `tag` does not solve by gradient though another method does, and others."""
    lines = []
    for name in scores.names:
        run = scores.runs[tag][name]
        others = [t for t, r in scores.runs.items() if r[name]["gradient_work"] is not None]
        remarks = []
        if run["gradient_work"] is None and others:
            remarks.append(f"unsolved, unlike {', '.join(others)}")
        if false_success(run, scores.about[name]) or broken_promise(run):
            remarks.append("false success")
        if remarks:
            lines.append(
                f"- {name} (n = {scores.about[name]['n']}): {'; '.join(remarks)}"
                f" [{run['message']}; g {run['g']:.1e}, f {run['f']:.6g}]"
            )
    return "\n".join(lines)


def shown(scores: Scores) -> list[str]:
    """The tables to show: with one half only, one says all there is to say."""
    if not scores.collection.startswith("s2mpj"):
        return ["all"]
    filled = [half for half in HALVES if scores.subset(half)]
    return ["all", *filled] if len(filled) == 2 else filled


def show(scores: Scores) -> str:
    parts = [table(scores, half) for half in shown(scores)]
    return "\n".join([*parts, bounds_note(scores), explanation(scores)])


def command(scores: Scores, keep: bool, details: str | None) -> None:
    text = show(scores)
    print(text)
    if details:
        print(failures(scores, details))
    if keep:
        write(scores)
        (stored(scores.collection) / "table.md").write_text(text)
