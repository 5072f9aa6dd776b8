"""Files of the repository as pages: the changelog, how to contribute."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "README.md#try-it": "start.md#work-on-it",
    "README.md": "index.md",
    "docs/convergence.md": "convergence.md",
}


def text(path):
    """The file, with its links made those of the site."""

    def moved(match):
        label, target = match.groups()
        if target in PAGES:
            return f"[{label}]({PAGES[target]})"
        if "://" in target or target.startswith("#"):
            return match.group()
        return f"[{label}](../{target})"

    return re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", moved, (ROOT / path).read_text())
