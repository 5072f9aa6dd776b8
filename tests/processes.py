"""Programs that tests start."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATHS = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def printed_by(command, cwd=ROOT, **environment):
    """What a program prints that must end well; it imports the packages of this tree."""
    environment = {**os.environ, "PYTHONPATH": PATHS, **environment}
    ran = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
