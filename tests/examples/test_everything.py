"""One command knows all committed results, and its commands exist."""

import importlib.util
import shlex

import pytest

from examples.benchmarks import everything

FOLDERS = "examples/benchmarks/results", "examples/paper/results", "examples/physics/results"
SHARED = {everything.ROOT / "examples/benchmarks/results/scipy/problems.json"}  # of all collections


def test_each_committed_result_belongs_to_one_entry():
    files = {
        path
        for folder in FOLDERS
        for path in (everything.ROOT / folder).rglob("*")
        if path.suffix in (".json", ".md")
    }
    found = [path for result in everything.ALL for path in result.paths()]
    assert len(found) == len(set(found))
    assert files - SHARED <= set(found)


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
