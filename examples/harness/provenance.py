"""When, on what and with which code a run was made."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import date
from importlib.metadata import version
from pathlib import Path

import ksdmin


def provenance(*packages: str, hardware: str | None = None, commit: str | None = None) -> dict:
    """Date, commit, hardware, and the versions of some packages.

    Parameters
    ----------
    packages : str
        As pip names them.
    hardware : str, optional
        The processor, where not given.
    commit : str, optional
        That of the checkout, where not given.
    """
    return {
        "date": date.today().isoformat(),
        "commit": commit or checkout_commit(),
        "hardware": hardware or processor(),
        **{name: version(name) for name in packages},
    }


def checkout_commit() -> str:
    """The commit that ksdmin's checkout is at; without git, ksdmin's version."""
    return _git("describe", "--always", "--dirty") or ksdmin.__version__


def package_commit() -> str:
    """The commit that last changed ksdmin itself: changes of anything else leave its runs valid."""
    changed = "-dirty" if _git("status", "--porcelain", ".") else ""
    return (_git("log", "-1", "--format=%h", "--", ".") or ksdmin.__version__) + changed


def processor() -> str:
    """The name of the processor, where the system has it, and the number of cores."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{named[0] if named else platform.machine()}, {os.cpu_count()} cores"


def _git(*arguments: str) -> str:
    """What git prints in ksdmin's folder; nothing where that is no checkout, or there is no git."""
    if shutil.which("git") is None:
        return ""
    asked = subprocess.run(
        ["git", *arguments],
        cwd=Path(ksdmin.__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip()
