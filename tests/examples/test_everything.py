"""One command knows all committed results, and its commands exist."""

import importlib.util
import shlex
import subprocess
from pathlib import Path

import pytest

from examples.benchmarks import everything

pytestmark = pytest.mark.skipif(
    not (everything.ROOT / ".git").exists(), reason="the committed files are git's to name"
)
FOLDERS = "examples/benchmarks/results", "examples/paper/results", "examples/physics/results"
SHARED = {"examples/benchmarks/results/scipy/problems.json"}  # of all collections


def test_each_committed_result_belongs_to_one_entry():
    command = ["git", "ls-files", *FOLDERS]
    named = subprocess.run(command, cwd=everything.ROOT, capture_output=True, text=True, check=True)
    files = {Path(name) for name in named.stdout.split() if name not in SHARED}
    found = [
        path.relative_to(everything.ROOT) for result in everything.ALL for path in result.paths()
    ]
    assert len(found) == len(set(found))
    assert files <= set(found)


@pytest.mark.parametrize("result", everything.ALL, ids=lambda result: result.name)
def test_its_commands_exist(result):
    assert result.data
    for command in (*result.measure, *result.draw):
        first, *rest = shlex.split(command)
        if first == "-m":
            assert importlib.util.find_spec(rest[0]) is not None
        else:
            assert (everything.ROOT / first).exists()


def test_the_list_and_the_commands(capsys):
    everything.main(["measure", "growth", "--dry-run"])
    assert capsys.readouterr().out.startswith("python examples/benchmarks/growth.py")
    everything.main(["list", "growth"])
    assert "growth" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        everything.main(["draw", "grwoth"])
