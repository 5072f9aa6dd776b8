"""The committed file: one line a run."""

import json
import subprocess
from datetime import date
from pathlib import Path

from tests.reference_runs.fingerprint import fingerprint

HERE = Path(__file__).parent
PATH = HERE / "reference.json"


def read():
    return json.loads(PATH.read_text())


def write(entries):
    head = {"fingerprint": fingerprint(), "commit": commit(), "date": date.today().isoformat()}
    top = [f'"{key}": {json.dumps(value)},\n' for key, value in head.items()]
    lines = [f'"{name}": {json.dumps(entry)}' for name, entry in entries.items()]
    PATH.write_text("{\n" + "".join(top) + '"runs": {\n' + ",\n".join(lines) + "\n}\n}\n")


def commit():
    """The last that changed the package; marked where it was changed since."""
    done = {"cwd": HERE, "capture_output": True, "text": True, "check": True}
    last = subprocess.run(["git", "log", "-1", "--format=%H", "--", ":/ksdmin"], **done).stdout
    changes = subprocess.run(["git", "status", "--short", "--", ":/ksdmin"], **done).stdout
    return last.strip() + (" and changes" if changes else "")
