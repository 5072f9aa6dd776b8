"""The committed tables are what the commands make of the committed runs."""

import sys

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
from tests.processes import ROOT, printed_by

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
    tables = printed_by(command, folder).split("END\n")[:-1]
    assert tables == [(RESULTS / f"{name}.md").read_text() for name in SCRIPTS]


@pytest.mark.parametrize("name", ["ablation", "ablation_nets"])
def test_the_tables_of_constants(name, capsys):
    ablation.main(["--table", "--out", str(RESULTS / f"{name}.json")])
    assert capsys.readouterr().out == (RESULTS / f"{name}.md").read_text()


def reports():
    """Of the benchmarks of convex sums, by the folder of the results."""
    yield "regression", ratio_tables.report(kept_runs.RESULTS, data_sets.SETS, data_sets.L2)
    for suite, tables in ((suites.LOSSES, loss_tables), (suites.MANY_SAMPLES, large_tables)):
        yield suite.results.name, tables.report(suite.results, suite.results, suite.l2)


def test_the_tables_of_convex_sums():
    for folder, report in reports():
        assert report + "\n" == (RESULTS / folder / "table.md").read_text()


@pytest.mark.parametrize("collection", problem_sets.COLLECTIONS)
def test_the_tables_of_the_comparison_with_scipys_methods(collection, tmp_path):
    loaded = scores.load(collection, None, cache=tmp_path)
    assert score_tables.show(loaded) == (RESULTS / f"scipy/{collection}/table.md").read_text()


@pytest.mark.parametrize(
    "command",
    [
        "scipy_methods.py table --collection classic --tags ksd,BFGS",
        pytest.param("regression.py --table --data a9a", marks=pytest.mark.slow),
        pytest.param("torch_products.py --help", marks=pytest.mark.slow),
    ],
)
def test_scripts_run_from_anywhere(command, tmp_path):
    script, *arguments = command.split()
    call = [sys.executable, ROOT / "examples/benchmarks" / script, *arguments]
    assert printed_by(call, tmp_path)
