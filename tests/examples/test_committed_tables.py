"""The committed tables are what the commands make of the committed runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from examples.benchmarks import ablation
from examples.benchmarks.comparison import problem_sets, score_tables, scores
from examples.benchmarks.regression_suite import (
    data_sets,
    kept_runs,
    large_tables,
    loss_tables,
    ratio_tables,
    suites,
)

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "examples/benchmarks/results"


SCRIPTS = ("seconds", "growth", "least_squares", "bundle_adjustment")
IN_ONE_PROCESS = """
import runpy, sys
for name in sys.argv[2:]:
    sys.argv[1:] = ["--table", "--out", f"{RESULTS}/{name}.json"]
    runpy.run_module(name, run_name="__main__")
    print("END")
"""


def test_the_tables_of_seconds_and_growth():
    code = IN_ONE_PROCESS.replace("{RESULTS}", str(RESULTS))
    command = [sys.executable, "-c", code, "", *SCRIPTS]
    folder = ROOT / "examples/benchmarks"
    printed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    tables = printed.stdout.split("END\n")[:-1]
    assert tables == [(RESULTS / f"{name}.md").read_text() for name in SCRIPTS]


@pytest.mark.parametrize("name", ["ablation", "ablation_nets"])
def test_the_tables_of_constants(name, capsys):
    ablation.main(["--table", "--out", str(RESULTS / f"{name}.json")])
    assert capsys.readouterr().out == (RESULTS / f"{name}.md").read_text()


def test_the_tables_of_the_regression_benchmark():
    report = ratio_tables.report(kept_runs.RESULTS, list(data_sets.SETS), list(data_sets.L2))
    assert report + "\n" == (RESULTS / "regression/table.md").read_text()


def test_the_table_of_the_losses():
    report = loss_tables.report(suites.LOSSES.results, suites.LOSSES.results, suites.LOSSES.l2)
    assert report + "\n" == (RESULTS / "losses/table.md").read_text()


def test_the_table_of_many_samples():
    suite = suites.MANY_SAMPLES
    report = large_tables.report(suite.results, suite.results, suite.l2)
    assert report + "\n" == (RESULTS / "many_samples/table.md").read_text()


@pytest.mark.parametrize("collection", problem_sets.COLLECTIONS)
def test_the_tables_of_the_comparison_with_scipys_methods(collection, tmp_path):
    loaded = scores.load(collection, None, cache=tmp_path)
    assert score_tables.show(loaded) == (RESULTS / f"scipy/{collection}/table.md").read_text()


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            ("regression.py", "--table", "--data", "a9a"),
            marks=pytest.mark.slow,
            id="regression.py",
        ),
        ("scipy_methods.py", "table", "--collection", "classic", "--tags", "ksd,BFGS"),
        pytest.param(
            ("torch_products.py", "--help"), marks=pytest.mark.slow, id="torch_products.py"
        ),
    ],
    ids=lambda command: command[0],
)
def test_scripts_run_from_anywhere(command, tmp_path):
    script, *arguments = command
    ran = subprocess.run(
        [sys.executable, ROOT / "examples/benchmarks" / script, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout
