"""The page of experiments: what the commands of examples/paper make of its committed runs."""

import subprocess
import sys
from pathlib import Path

from tables import warn

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "examples/paper/results"
FIGURES = ROOT / "docs/generated/paper"
NOTHING = """:::{note}
This checkout holds no results of the experiments: examples/paper/results has no JSON file. The page
fills itself from there when the site is built.
:::"""


def page():
    """The table with the paper's numbers beside ours, the figures, and links to the runs."""
    runs = sorted(RESULTS.glob("*.json"))
    if not runs:
        return NOTHING
    table = command("table")
    command("figures", "--out", str(FIGURES))
    figures = [
        f"![{path.stem}: errors over seconds and passes](generated/paper/{path.name})"
        for path in sorted(FIGURES.glob("*.svg"))
    ]
    links = ", ".join(f"[{path.name}](../{path.relative_to(ROOT)})" for path in runs)
    about = "{download}`README <../examples/paper/README.md>`"
    closing = f"The runs: {links}; how they were made: {about}."
    return "\n\n".join([table, "## Figures", *figures, closing])


def command(*arguments):
    """What ``python -m examples.paper`` prints."""
    ran = subprocess.run(
        [sys.executable, "-m", "examples.paper", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        warn(f"python -m examples.paper {' '.join(arguments)} failed: {ran.stderr}")
    return ran.stdout
