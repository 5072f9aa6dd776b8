"""The ablation: it finds every constant, its changes count, its runs are kept and compared."""

import inspect
import math
import multiprocessing
import sys
import types

import numpy as np
import pytest

from examples.benchmarks import ablation
from examples.benchmarks.rule_variants import (
    jobs,
    preloaded,
    ratios,
    rewritten,
    sums,
    tasks,
)
from examples.benchmarks.rule_variants.constants import (
    COUNTED,
    NAMED,
    PRESET,
    SWITCH,
    UNNAMED,
    constants,
    of_module,
)
from examples.benchmarks.rule_variants.variants import BASELINES, other_values, variants

# Other tests may have loaded jax, which warns of forks: those here compute with numpy only.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork")

SOURCE = '''
"""Numbers: 3 of them in a docstring."""
import math
ONE = 2**30
PAIR = (0.1, 4)
LEFT, RIGHT = 1 / 10, -3
EPS = float(math.e)
NOISE = 100 * EPS
NESTED = (math.exp(0.3), (5, EPS))
CALLED = dict(powers=tuple(EPS**k for k in (3, 2)))
lower_case = 0.7
NAMES = ("a", "b")
AS_PRINTED = dict(steps=7)
OURS = dict(steps=8, on=True, inner=dict(share=0.02), text="9")

class Rule:
    value: float = LEFT
    patience: int = 5
    count: int = 0
    noise: float = 40 * EPS
    share = 0.6

    def after(self, x, times=6):
        return x[-1] / 2 + 0.5 * times + 1e-30 - 2 * 2 * 2 * x

def twice(x):
    return 2 * x if x < 100 else 100
'''
DEFAULT, CONTROL, REFERENCE = BASELINES
WOODS = tasks.Task(tasks.ENDS, "wood")


@pytest.fixture
def module(tmp_path):
    made = types.ModuleType("ksdmin.made")
    made.__file__ = str(tmp_path / "made.py")
    (tmp_path / "made.py").write_text(SOURCE)
    return made


def test_every_number_is_found_and_sorted(module):
    found = {(c.kind, c.name): c.value for c in of_module(module)}
    assert found == {
        (NAMED, "ONE"): 2**30,
        (NAMED, "PAIR[0]"): 0.1,
        (NAMED, "PAIR[1]"): 4,
        (NAMED, "LEFT"): 0.1,
        (NAMED, "RIGHT"): -3,
        (NAMED, "lower_case"): 0.7,
        (NAMED, "Rule.patience"): 5,
        (NAMED, "Rule.share"): 0.6,
        (NAMED, "NESTED[1][0]"): 5,
        (PRESET, "OURS.steps"): 8,
        (SWITCH, "OURS.on"): True,
        (PRESET, "OURS.inner.share"): 0.02,
        (PRESET, "NESTED[0].0"): 0.3,
        (UNNAMED, "NOISE: 100"): 100,
        (UNNAMED, "CALLED.powers.0: 3"): 3,
        (UNNAMED, "Rule.noise: 40"): 40,
        (UNNAMED, "after: 8"): 8,
        (UNNAMED, "after: 6"): 6,
        (UNNAMED, "after: 1e-30"): 1e-30,
        (UNNAMED, "twice: 100"): 100,
        (UNNAMED, "twice: 100 (2)"): 100,
    }


def test_there_are_few_constants():
    """Before a new one: can an old one go, or say the same, or a principle take its place?"""
    assert sum(constant.kind in COUNTED for constant in constants()) <= 48


def test_every_constant_of_ksdmin_can_be_changed():
    for constant in constants():
        source = inspect.getsource(sys.modules[constant.module])
        rewritten.changed(source, constant, other_values(constant)[0])  # it would raise


def in_a_process(work):
    """What `work` returns, in a copy of this process."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=lambda: there.send(work()))
    process.start()
    there.close()
    try:
        return here.recv()
    finally:
        process.join()


def test_a_variant_changes_a_run():
    wolfe = variants(["WOLFE"])[-1]
    default, changed = (
        in_a_process(lambda v=v: jobs.perform(jobs.Job(v, 0, (WOODS,)))) for v in (DEFAULT, wolfe)
    )
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


def test_intervals_tell_gains_from_chance():
    rng = np.random.default_rng(0)
    noise = np.exp(0.1 * rng.standard_normal(50))
    chance, loss, gain = (
        ratios.Ratios({(str(i), 0): (factor * noise[i], 1.0) for i in range(50)})
        for factor in (1.0, 1.2, 0.8)
    )
    assert (chance.verdict, loss.verdict, gain.verdict) == ("", "default", "variant")
    assert math.isnan(ratios.Ratios({("a", 0): (1.0, 2.0)}).interval[0])


@pytest.mark.parametrize("name", [pytest.param("fit 8-30-10-1", marks=pytest.mark.slow), "Poisson"])
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
