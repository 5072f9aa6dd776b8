"""What the constants of the rules do: each rule switched off, each constant alone at other values.

Plain functions, regressions and small nets (see rule_variants/tasks.py); the result of a variant is
the geometric mean, with its standard error, of its work over that of the default: above 1 the
default is better. Every collection is split into two halves by a hash of the names. The rows
"control" show what changes without any constant: other draws, or, for plain functions, a start that
differs by 1e-6 (which also ends the symmetry that many standard starts have). From the root of the
repository:

    python -m examples.benchmarks.rule_constants run --out rule_constants.json
    python -m examples.benchmarks.rule_constants table rule_constants.json

One process with one thread took half an hour, on two cores with other work. Runs that are in the
file already are not repeated.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import examples.benchmarks.one_thread  # noqa: F401  before NumPy
from examples.benchmarks.rule_variants import ratios
from examples.benchmarks.rule_variants.tasks import Task, measures, perform, tasks
from examples.benchmarks.rule_variants.variants import ALL, VARIANTS, Variant
from examples.harness.provenance import provenance
from examples.harness.store import Run, Store

RESULT = Path(__file__).parent / "results" / "rule_constants.json"


def head(chosen: dict[str, list[Task]], commit: str | None) -> dict:
    """What is said of all runs: where they were made, and the tasks, in their order."""
    about = {
        name: {"measures": measures(name), "tasks": [(t.name, t.seed, t.half) for t in members]}
        for name, members in chosen.items()
    }
    return provenance("numpy", "scipy", "torch", commit=commit) | {"collections": about}


def run_of(variant: Variant, collection: str, members: Iterable[Task]) -> Run:
    """One variant on one collection, as it is stored: a list for each measure."""
    results = zip(*(perform(task, variant) for task in members), strict=True)
    return {
        "collection": collection,
        "rule": variant.rule,
        "constant": variant.constant,
        "value": variant.value,
        "results": [[stored(value) for value in row] for row in results],
    }


def stored(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def measure(
    store: Store,
    variants: Sequence[Variant],
    chosen: dict[str, list[Task]],
    commit: str | None = None,
) -> None:
    """Add the runs to the file, one variant after the other."""
    about = head(chosen, commit)
    if store.head.get("commit", about["commit"]) != about["commit"]:
        raise SystemExit(f"the file has runs of {store.head['commit']}, not of {about['commit']}")
    store.replace(store.runs, about)
    for variant in variants:
        for collection in (name for name in variant.collections if name in chosen):
            names = {name: getattr(variant, name) for name in ("rule", "constant", "value")}
            if store.find(collection=collection, **names) is None:
                store.add(run_of(variant, collection, chosen[collection]))
                print(variant.name, collection, flush=True)


def run(arguments: argparse.Namespace) -> None:
    chosen = {collection: tasks(collection) for collection in ALL}
    measure(Store(arguments.out, ratios.IDENTITY), VARIANTS, chosen, arguments.commit)


def table(arguments: argparse.Namespace) -> None:
    print(ratios.table(Store(arguments.file, ratios.IDENTITY)))


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run", help="run all variants")
    runs.add_argument("--out", type=Path, default=RESULT, help="JSON, which runs are added to")
    runs.add_argument("--commit", help="that of ksdmin, where it is no checkout")
    runs.set_defaults(act=run)
    tables = commands.add_parser("table", help="a table in Markdown")
    tables.add_argument("file", type=Path)
    tables.set_defaults(act=table)
    arguments = parser.parse_args(given)
    arguments.act(arguments)


if __name__ == "__main__":
    main()
