"""The page of experiments, from what examples/paper has put into its results.

Where the folder holds table.md or figures, those are shown: its own commands wrote them. Otherwise
the runs themselves are, one table and one figure a file.
"""

import json
from pathlib import Path
from statistics import median

from tables import markdown

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "examples/paper/results"
OUT = ROOT / "docs/generated"
NO_ERRORS = {"seconds", "passes", "iteration", "products", "updates", "objective"}


def page():
    runs = sorted(RESULTS.glob("*.json"))
    if not runs:
        return (
            ":::{note}\nThis checkout holds no results of the experiments: examples/paper/results "
            "has no JSON file. The page fills itself from there when the site is built.\n:::"
        )
    tables, figures = sorted(RESULTS.glob("*.md")), sorted(RESULTS.glob("*.svg"))
    parts = [table.read_text() for table in tables]
    parts += [f"![{f.stem}](../{f.relative_to(ROOT)})" for f in figures]
    if not tables:
        parts += [row(path, draw=not figures) for path in runs]
    links = ", ".join(f"[{path.name}](../{path.relative_to(ROOT)})" for path in runs)
    return "\n\n".join([*parts, f"The runs: {links}."])


def row(path, draw):
    """One data set: the errors at the end of each run, and the way there."""
    runs = [run for run in json.loads(path.read_text()) if run.get("trace")]
    if not runs:
        return ""
    errors = [n for n in runs[0]["trace"] if n not in NO_ERRORS]
    by_label = {}
    for run in runs:
        by_label.setdefault(label(run["config"]), []).append(run["trace"])
    rows = [
        [
            name,
            len(traces),
            *(f"{median(t[e][-1] for t in traces):.4g}" for e in errors if e in traces[0]),
        ]
        for name, traces in by_label.items()
    ]
    text = f"## {path.stem}\n\n" + markdown(["method", "runs", *errors], rows)
    if draw and errors:
        text += f"\n\n![{path.stem}]({figure(path.stem, by_label, errors[0])})"
    return text


def label(config):
    parts = [config.get(key) for key in ("method", "curvature", "rate")]
    return ", ".join(str(part) for part in parts if part is not None)


def figure(name, by_label, error):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for title, traces in by_label.items():
        axes.loglog(traces[0]["seconds"], traces[0][error], label=title)
    axes.set(title=name, xlabel="seconds", ylabel=f"error ({error})")
    axes.legend()
    OUT.mkdir(exist_ok=True)
    fig.savefig(OUT / f"paper-{name}.svg")
    plt.close(fig)
    return f"generated/paper-{name}.svg"
