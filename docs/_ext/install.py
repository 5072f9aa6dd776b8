"""How to install ksdmin, and with which versions it works: from pyproject.toml.

The one setting is ``Repository`` in its ``[project.urls]``. As long as it is not there, pages
speak of a clone, and the bar has no link.
"""

import re
import tomllib
from pathlib import Path

from tables import markdown

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REPOSITORY = PROJECT["urls"].get("Repository")
EXTRAS = ("torch", "jax", "autograd", "plot", "progress")


def line():
    """The command, and where to find the repository."""
    if REPOSITORY is None:
        return (
            "Install it in a clone of the repository: `pip install .`, or with an extra "
            '`pip install ".[torch]"`. [More](start.md#install)'
        )
    return (
        f'`pip install "git+{REPOSITORY}"` &nbsp; [Repository]({REPOSITORY}) &nbsp; '
        "[More](start.md#install)"
    )


def compatibility():
    """The oldest versions that are supported and tested, and the newest that are pinned."""
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)", constraints(), re.MULTILINE))
    needed = [(name, "always") for name in PROJECT["dependencies"]]
    extras = PROJECT["optional-dependencies"]
    needed += [(name, f"`.[{extra}]`") for extra in EXTRAS for name in extras[extra]]
    rows = [["Python", "always", oldest_python(), ", ".join(pythons())]]
    for requirement, purpose in needed:
        name, oldest = requirement.split(">=")
        rows.append([name, purpose, oldest, pinned.get(name, "the newest release")])
    table = markdown(["package", "needed for", "oldest", "tested up to"], rows)
    return (
        f"{table}\n\nThe tests run on Linux, with the newest and with the oldest versions; on a "
        "GPU with CUDA and torch. Other systems are not tested."
    )


def constraints():
    return (ROOT / ".ci/constraints.txt").read_text()


def oldest_python():
    return PROJECT["requires-python"].removeprefix(">=")


def pythons():
    """Those that the workflow tests with: a test compares it with the classifiers."""
    return re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
