"""The ablation: its changes count, its runs are kept and compared."""

import inspect
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest

from examples.benchmarks import ablation
from examples.benchmarks.rule_variants import (
    jobs,
    preloaded,
    rewritten,
    sums,
    tasks,
)
from examples.benchmarks.rule_variants.constants import (
    COUNTED,
    constants,
)
from examples.benchmarks.rule_variants.variants import BASELINES, other_values, variants

# Other tests may have loaded jax, which warns of forks: those here compute with numpy only.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork")

DEFAULT = BASELINES[0]
WOODS = tasks.Task(tasks.ENDS, "wood")


def test_there_are_few_constants():
    """Before a new one: can an old one go, or say the same, or a principle take its place?"""
    assert sum(constant.kind in COUNTED for constant in constants()) <= 48


def test_every_constant_of_ksdmin_can_be_changed():
    for constant in constants():
        source = inspect.getsource(sys.modules[constant.module])
        rewritten.changed(source, constant, other_values(constant)[0])  # it would raise


def in_a_process(job):
    """What a job finds, in a copy of this process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(jobs.perform, job).result()


def test_a_variant_changes_a_run():
    wolfe = variants(["WOLFE"])[-1]
    default, changed = (in_a_process(jobs.Job(v, 0, (WOODS,))) for v in (DEFAULT, wolfe))
    assert changed["constant"] == "WOLFE"
    assert changed["results"] != default["results"]
    assert jobs.perform(jobs.Job(DEFAULT, 0, (WOODS,))) == default


@pytest.fixture
def small(monkeypatch):
    """One collection of two tasks."""
    members = [WOODS, tasks.Task(tasks.ENDS, "beale")]
    monkeypatch.setattr(ablation, "KINDS", {"plain": (tasks.ENDS,)})
    monkeypatch.setattr(ablation, "tasks", lambda collection, half: members)


@pytest.mark.usefixtures("small")
def test_runs_are_kept_and_compared(tmp_path, capsys):
    given = ["--kinds", "plain", "--only", "quasi-newton off", "--out", str(tmp_path / "runs.json")]
    ablation.main(given)
    assert "4 variants, 3 blocks" in capsys.readouterr().out  # no reference of plain functions
    ablation.main(given)
    assert "0 blocks done, 0 left" in capsys.readouterr().out  # nothing is run twice
    ablation.main([*given, "--table"])
    shown = capsys.readouterr().out
    assert "| quasi-newton |  | off |" in shown
    assert "| quasi-newton | (the rule) |" in shown
    assert "Tasks: 2 to the end." in shown


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fit 8-30-10-1", "Poisson"])
def test_a_net_is_run(name, monkeypatch):
    monkeypatch.setattr(tasks.net_tasks, "PASSES", (1, 3))
    monkeypatch.setattr(tasks.net_tasks, "POINTS", 100)
    monkeypatch.setattr(preloaded, "_KEPT", {})
    early, late = tasks.perform(tasks.Task(tasks.NETS, name), "default", {})
    assert late < early


def test_a_sum_is_run():
    name = next(iter(sums.LARGE_REGRESSIONS))
    (passes,) = tasks.perform(tasks.Task(tasks.MANY, name), "default", {})
    assert 0 < passes < tasks.SUM_CAP
