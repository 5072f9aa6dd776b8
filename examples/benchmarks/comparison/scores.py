"""From runs to scores: which targets were reached, with how much work.

Two targets. By gradient: |g| <= 1e-5 max(1, |g0|), largest magnitudes, at a point whose gradient
was asked for (with bounds: the projected gradient, at a point in the box). By value: f <= f* +
1e-6 (f0 - f*), where f* is the lowest value that any run of any method ever saw.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from examples.benchmarks.comparison import pooled_runs, problem_sets, solvers

VALUE = 1e-6
UNBOUNDED = -1e15  # a problem where any run went below this has no solution, and counts nowhere
GTOL = 1e-5 * (1 + 1e-9)  # what success of ksd promises, and rounding
COLUMNS = (
    *("success", "message", "nf", "ng", "nh", "seconds", "inside", "f", "g"),
    *("gradient_work", "gradient_seconds", "value_work", "outside", "farthest"),
)
ABOUT = ("n", "half", "f0", "g0", "best")  # what is the same for all methods


@dataclass
class Scores:
    """All runs of a collection: `runs[tag][problem]`, and what is known about the problems."""

    collection: str
    cache: Path
    runs: dict[str, dict[str, dict]] = field(default_factory=dict)
    heads: dict[str, dict] = field(default_factory=dict)
    about: dict[str, dict] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The problems that all tags have run, and that have a minimum."""
        first, *others = self.runs.values()
        shared = [name for name in first if all(name in other for other in others)]
        return [name for name in shared if self.about[name]["best"] > UNBOUNDED]

    def subset(self, half: str) -> list[str]:
        return [name for name in self.names if half in ("all", self.about[name]["half"])]


def stored(collection: str) -> Path:
    return problem_sets.RESULTS / collection


def load(collection: str, tags: list[str] | None, cache: Path) -> Scores:
    """The runs under these tags (None: all methods), from the cache or else from the results."""
    scores = Scores(collection, cache)
    about_file = stored(collection) / "problems.json"
    scores.about = json.loads(about_file.read_text()) if about_file.exists() else {}
    for tag in tags or dict.fromkeys(solvers.UNCONSTRAINED + solvers.BOUNDED):
        places = (pooled_runs.cached(collection, tag, cache), stored(collection) / f"{tag}.json")
        found = [place for place in places if place.exists()]
        if found:
            head = pooled_runs.read(found[0])
            scores.runs[tag] = {name: unpack(run) for name, run in head.pop("runs").items()}
            scores.heads[tag] = head
        elif tags:
            raise SystemExit(f"no runs of {tag!r} over {collection}: run them first")
    if not scores.runs:
        raise SystemExit(f"no runs over {collection} yet")
    describe(scores)
    return scores


def unpack(run: dict | list) -> dict:
    return run if isinstance(run, dict) else dict(zip(COLUMNS, run, strict=True))


def describe(scores: Scores) -> None:
    """Fill `about` with the best values known, and the runs with `value_work`."""
    file = scores.cache / scores.collection / "best.json"
    best = json.loads(file.read_text()) if file.exists() else {}
    for of_tag in scores.runs.values():
        for name, run in of_tag.items():
            if "trace" in run:
                about = scores.about.setdefault(name, {"best": np.inf})
                about |= {key: run[key] for key in ("n", "f0", "g0")}
                about["half"] = problem_sets.half(name)
                about["best"] = min(about["best"], run["best"], best.get(name, np.inf))
    for of_tag in scores.runs.values():
        for name, run in of_tag.items():
            if "trace" in run:
                run["value_work"] = value_work(run, scores.about[name])


def value_target(about: dict) -> float:
    return about["best"] + VALUE * (about["f0"] - about["best"])


def value_work(run: dict, about: dict) -> int | None:
    target = value_target(about)
    return next((work for work, value in run["trace"] if value <= target), None)


def gradient_target(about: dict) -> float:
    return problem_sets.TARGET * max(1.0, about["g0"])


def false_success(run: dict, about: dict) -> bool:
    """Success is claimed for a point that meets neither target."""
    met = run["g"] <= gradient_target(about) or run["f"] <= value_target(about)
    return run["success"] and not met


def broken_promise(run: dict) -> bool:
    """Success of ksd says that the gradient is below gtol, whatever it was at the start."""
    return run["success"] and not run["g"] <= GTOL


def write(scores: Scores) -> None:
    """The small files that are committed: one about the problems, one a method."""
    folder = stored(scores.collection)
    folder.mkdir(parents=True, exist_ok=True)
    about = {name: {key: values[key] for key in ABOUT} for name, values in scores.about.items()}
    (folder / "problems.json").write_text(line_by_line({}, about))
    for tag, of_tag in scores.runs.items():
        rows = {name: [short(key, run[key]) for key in COLUMNS] for name, run in of_tag.items()}
        text = line_by_line(scores.heads[tag] | {"columns": COLUMNS}, {"runs": rows})
        (folder / f"{tag}.json").write_text(text)


def short(key: str, value):
    """Seconds have no more to say than four digits; values decide about targets, and are kept."""
    timed = value is not None and key in ("seconds", "inside", "gradient_seconds")
    return float(f"{value:.4g}") if timed else value


def line_by_line(head: dict, content: dict) -> str:
    """JSON with one problem a line, for small differences between versions."""

    def lines(rows: dict) -> str:
        return ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())

    if not head:
        return "{\n" + lines(content) + "\n}\n"
    return "{\n" + lines(head) + ',\n"runs": {\n' + lines(content["runs"]) + "\n}\n}\n"
