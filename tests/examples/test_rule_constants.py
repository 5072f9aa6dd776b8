"""The measurement of the rules' constants: its patches count, its runs are kept, its table."""

from pathlib import Path

import pytest

from examples.benchmarks import rule_constants
from examples.benchmarks.rule_variants import ratios
from examples.benchmarks.rule_variants.tasks import REGRESSIONS, Task, perform, tasks
from examples.benchmarks.rule_variants.variants import (
    ALL,
    PLAIN,
    SUMS,
    VARIANTS,
    Variant,
    of_rule,
    patched_defaults,
)
from examples.harness.store import Store
from ksdmin._ksd.rules.stall import PATIENCE, Stall

RESULTS = Path(__file__).parents[2] / "examples/benchmarks/results"
DEFAULT = VARIANTS[0]
WOODS = Task(PLAIN, "woods")
REGRESSION = Task(SUMS, next(iter(REGRESSIONS)))


def named(name: str) -> Variant:
    return next(variant for variant in VARIANTS if variant.name == name)


def test_every_constant_that_is_patched_exists():
    for variant in VARIANTS:
        with variant.applied():
            pass


def test_a_patched_constant_changes_a_run():
    default, leap, again = (
        perform(WOODS, variant) for variant in (DEFAULT, named("trust MAX_LEAP 3"), DEFAULT)
    )
    assert leap != default
    assert again == default


def test_the_default_of_a_dataclass_is_patched_too():
    with named("stall PATIENCE 6").applied():
        assert Stall(1.0).patience == 6
    assert Stall(1.0).patience == PATIENCE


def test_a_constant_that_is_not_there_is_refused():
    (variant,) = of_rule("stall", "NO_SUCH_CONSTANT", (1,), (PLAIN,))
    with pytest.raises(AttributeError, match="NO_SUCH_CONSTANT"), variant.applied():
        pass
    with pytest.raises(AttributeError, match="no default of impatience"):
        patched_defaults("ksdmin._ksd.rules.stall:Stall", {"impatience": 1})


def test_runs_are_kept_and_compared(tmp_path, capsys):
    path, chosen = tmp_path / "runs.json", {PLAIN: [WOODS], SUMS: [REGRESSION]}
    variants = [DEFAULT, named("forcing off"), named("presets fewest 1000")]
    rule_constants.measure(Store(path, ratios.IDENTITY), variants, chosen)
    assert len(capsys.readouterr().out.splitlines()) == 5
    rule_constants.measure(Store(path, ratios.IDENTITY), variants, chosen)
    assert capsys.readouterr().out == ""  # nothing is run twice
    rule_constants.main(["table", str(path)])
    shown = capsys.readouterr().out
    assert "| forcing |  | off | plain | work |" in shown
    assert "| presets | fewest | 1000 | sums | passes |" in shown


def test_ratios_are_of_what_both_solve():
    found = ratios.compared([2.0, 8.0, None, 5.0], [1.0, 2.0, 3.0, None])
    assert found.mean == pytest.approx(8**0.5)
    assert (found.worst, found.solved, found.by_default, found.tasks) == (4.0, 3, 3, 4)


def test_a_net_is_judged_by_its_excess_over_the_best_value():
    runs = [
        {"rule": rule, "constant": "", "value": "", "results": results}
        for rule, results in {"default": [[3.0]], "damping": [[2.0]], "reference": [[1.0]]}.items()
    ]
    found = ratios.with_excess(runs, ["excess after 60 passes"])
    assert found == {("default", "", ""): [[2.0]], ("damping", "", ""): [[1.0]]}


@pytest.mark.parametrize("collection", ALL)
def test_tasks_are_different(collection):
    members = tasks(collection)
    assert len(set(members)) == len(members)


def test_the_committed_table(capsys):
    rule_constants.main(["table", str(RESULTS / "rule_constants.json")])
    assert capsys.readouterr().out == (RESULTS / "rule_constants.md").read_text()
